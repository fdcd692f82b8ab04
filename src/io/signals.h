// SIGINT and SIGTERM as a wish that long work looks at between its steps.
#pragma once

namespace depthroute {

// From now on the first signal only sets the wish; a second one ends the process as usual.
void catch_stop_signals();
// The number of the signal that came, 0 for none.
int stop_signal();

}  // namespace depthroute
