#include "train/process_group.h"

#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

// What the wheel's library was built with; its headers leave these classes out otherwise.
#define USE_DISTRIBUTED
#define USE_C10D_GLOO
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>
#include <torch/csrc/distributed/c10d/reducer.hpp>

#include "io/error.h"
#include "io/text.h"

namespace depthroute {
namespace {

using std::chrono::seconds;

// A lost process is found by its closed connections or by its silence (Watch), never by slowness: one may be busy for
// long (a validation, a checkpoint) while the others wait for it.
constexpr seconds kLongestWait = std::chrono::hours(6);

struct Launch {
  int64_t rank = 0, size = 1;
  std::string address;
  uint16_t port = 0;
  bool has_store = false;  // torchrun's agent keeps the store itself
  std::string prefix;
};

std::optional<std::string> variable(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr || *value == '\0') return std::nullopt;
  return value;
}

int64_t number(const char* name, int64_t low, int64_t high) {
  std::optional<std::string> text = variable(name);
  if (!text) fail_input("the environment has no {}, which torchrun sets", name);
  int64_t value = 0;
  auto [end, error] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (error != std::errc() || end != text->data() + text->size() || value < low || value > high)
    fail_input("the environment has {} = '{}', expected a number from {} to {}", name, *text, low, high);
  return value;
}

// The first machine of a list as Slurm writes it: "node[03-06,11],other" -> "node03".
std::string first_machine(const std::string& list) {
  const size_t bracket = list.find('[');
  if (bracket == std::string::npos || bracket > list.find(',')) return list.substr(0, list.find(','));
  return list.substr(0, bracket) + list.substr(bracket + 1, list.find_first_of(",-]", bracket) - bracket - 1);
}

Launch read_environment() {
  constexpr int64_t kMost = 1 << 16;
  Launch launch;
  if (variable("RANK") || variable("WORLD_SIZE")) {
    launch.size = number("WORLD_SIZE", 1, kMost);
    launch.rank = number("RANK", 0, launch.size - 1);
    launch.has_store = variable("TORCHELASTIC_USE_AGENT_STORE") == "True";
    launch.prefix = format_text("depthroute/{}", variable("TORCHELASTIC_RESTART_COUNT").value_or("0"));
    launch.address = variable("MASTER_ADDR").value_or("");
    if (launch.size > 1 && launch.address.empty())
      fail_input("the environment has no MASTER_ADDR, which torchrun sets");
    if (launch.size > 1) launch.port = static_cast<uint16_t>(number("MASTER_PORT", 1, 65535));
  } else if (variable("SLURM_STEP_NUM_TASKS")) {
    launch.size = number("SLURM_STEP_NUM_TASKS", 1, kMost);
    launch.rank = number("SLURM_PROCID", 0, launch.size - 1);
    launch.prefix = format_text("depthroute/{}", variable("SLURM_STEP_ID").value_or("0"));
    launch.address = variable("MASTER_ADDR").value_or(first_machine(variable("SLURM_STEP_NODELIST").value_or("")));
    if (launch.size > 1 && launch.address.empty())
      fail_input("the environment has neither MASTER_ADDR nor SLURM_STEP_NODELIST");
    constexpr int64_t kFirstPort = 20000, kPorts = 10000;
    launch.port =
        static_cast<uint16_t>(variable("MASTER_PORT") ? number("MASTER_PORT", 1, 65535)
                                                      : kFirstPort + number("SLURM_JOB_ID", 0, INT64_MAX) % kPorts);
  }
  return launch;
}

// The machine and the cores of it that this process may use: where several share them, they share the threads.
std::string own_cores() {
  char machine[256] = {};
  gethostname(machine, sizeof(machine) - 1);
  cpu_set_t cores;
  CPU_ZERO(&cores);
  sched_getaffinity(0, sizeof(cores), &cores);
  std::string text = machine;
  for (int core = 0; core < CPU_SETSIZE; ++core) text += CPU_ISSET(core, &cores) ? '1' : '0';
  return text;
}

std::vector<uint8_t> bytes(const std::string& text) {
  return {text.begin(), text.end()};
}

c10::intrusive_ptr<c10d::ProcessGroupGloo::Options> gloo_options(const std::string& address) {
  using Gloo = c10d::ProcessGroupGloo;
  auto options = Gloo::Options::create(kLongestWait);
  if (std::optional<std::string> interface = variable("GLOO_SOCKET_IFNAME")) {
    options->devices.push_back(Gloo::createDeviceForInterface(*interface));
  } else if (address == "localhost" || address.starts_with("127.")) {
    // All are on this machine then, whatever its name resolves to.
    options->devices.push_back(Gloo::createDeviceForHostname("127.0.0.1"));
  } else {
    options->devices.push_back(Gloo::createDefaultDevice());
  }
  return options;
}

// "model.layers.7.mlp.up_proj.weight" -> 7; -1 where there is none.
int64_t layer_of(const std::string& name) {
  const std::string prefix = "model.layers.";
  return name.starts_with(prefix) ? std::atoll(name.c_str() + prefix.size()) : -1;
}

std::string first_line(const char* text) {
  std::string line = text;
  line = line.substr(0, line.find('\n'));
  // "[enforce fail at file.cc:1] what it is", "[../file.cc:1] what it is"
  if (line.starts_with('[') && line.find("] ") != std::string::npos) line = line.substr(line.find("] ") + 2);
  return line;
}

bool is_about_connections(const std::string& message) {
  for (const char* part :
       {"onnection", "ocket", "eer", "imed out", "imeout", "gloo", "recv", "send", "Broken pipe"}) {
    if (message.find(part) != std::string::npos) return true;
  }
  return false;
}

std::string lost_message(const std::string& name, const std::string& why) {
  return format_text(
      "{}another process has ended or cannot be reached ({}); the same command continues from the last checkpoint",
      name, why);
}

// Tells the others through the store that this process lives, and ends it where one of them has been silent, or the store
// itself, whose calls may wait without end where the network is down. It counts its own rounds, not time: where all are
// suspended together, none is silent.
class Watch {
 public:
  Watch(c10::intrusive_ptr<c10d::Store> store, int64_t rank, int64_t size, std::string name)
      : store_(std::move(store)), rank_(static_cast<size_t>(rank)), name_(std::move(name)) {
    for (int64_t other = 0; other < size; ++other) keys_.push_back(format_text("alive/{}", other));
    store_->set(keys_[rank_], bytes("0"));
    talker_ = std::thread([this] { talk(); });
    guard_ = std::thread([this] { guard(); });
  }
  ~Watch() {
    // The guard goes on until the talk has ended: it may be waiting for a store that is gone.
    set(done_);
    talker_.join();
    set(talk_done_);
    guard_.join();
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

 private:
  static constexpr int64_t kRound = 5, kMostSilent = 8;  // seconds; rounds

  void set(bool& flag) {
    std::lock_guard lock(mutex_);
    flag = true;
    wake_.notify_all();
  }

  // True after a round, false as soon as `flag` is set.
  bool wait_for_round(const bool& flag) {
    std::unique_lock lock(mutex_);
    return !wake_.wait_for(lock, seconds(kRound), [&] { return flag; });
  }

  void talk() {
    std::vector<std::vector<uint8_t>> last(keys_.size());
    std::vector<int64_t> silent(keys_.size());
    while (wait_for_round(done_)) {
      try {
        store_->set(keys_[rank_], bytes(std::to_string(rounds_ + 1)));
        std::vector<std::vector<uint8_t>> now = store_->multiGet(keys_);
        for (size_t other = 0; other < keys_.size(); ++other) {
          silent[other] = now[other] == last[other] ? silent[other] + 1 : 0;
          if (silent[other] >= kMostSilent) {
            end(format_text("nothing heard of rank {} for {} s", other, kRound * kMostSilent));
          }
        }
        last = std::move(now);
        ++rounds_;
      } catch (const std::exception& error) {
        end(first_line(error.what()));
      }
    }
  }

  void guard() {
    int64_t last = -1, silent = 0;
    while (wait_for_round(talk_done_)) {
      silent = rounds_ == last ? silent + 1 : 0;
      last = rounds_;
      if (silent >= kMostSilent) end(format_text("the store does not answer for {} s", kRound * kMostSilent));
    }
  }

  // The other threads may be anywhere, also in a wait that nothing ends.
  [[noreturn]] void end(const std::string& why) const {
    std::fprintf(stderr, "depthroute: error: %s\n", lost_message(name_, why).c_str());
    std::_Exit(1);
  }

  c10::intrusive_ptr<c10d::Store> store_;
  size_t rank_;
  std::string name_;
  std::vector<std::string> keys_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false, talk_done_ = false;
  std::atomic<int64_t> rounds_ = 0;
  std::thread talker_, guard_;
};

}  // namespace

struct ProcessGroup::Connection {
  c10::intrusive_ptr<c10d::Store> store;
  c10::intrusive_ptr<c10d::ProcessGroupGloo> gloo;
  c10::intrusive_ptr<c10d::ProcessGroup> group;
  std::unique_ptr<Watch> watch;
  std::string name;

  // Waits for what is under way.
  template <typename Start>
  void finish(Start start) const {
    try {
      start()->wait();
    } catch (const std::exception& error) {
      throw RunError(lost_message(name, first_line(error.what())));
    }
  }
};

ProcessGroup::ProcessGroup() = default;
ProcessGroup::ProcessGroup(ProcessGroup&&) noexcept = default;

ProcessGroup::~ProcessGroup() {
  if (!connection_) return;
  // The first one keeps the store: it stays until nobody looks into it any more.
  connection_->watch.reset();
  if (std::uncaught_exceptions() > 0) return;
  try {
    barrier();
  } catch (const RunError&) {
    // The others' own message says why.
  }
}

ProcessGroup ProcessGroup::from_environment(seconds patience) {
  const Launch launch = read_environment();
  ProcessGroup result;
  result.rank_ = launch.rank;
  result.size_ = launch.size;
  if (result.alone()) return result;
  // c10d also logs, with stack traces, what it throws.
  if (!variable("TORCH_CPP_LOG_LEVEL")) FLAGS_caffe2_log_level = 3;
  auto connection = std::make_unique<Connection>();
  connection->name = result.name();
  try {
    c10d::TCPStoreOptions options;
    options.port = launch.port;
    options.isServer = result.first() && !launch.has_store;
    options.numWorkers = launch.size;
    options.waitWorkers = false;
    // It waits once or twice as long as it is told.
    options.timeout = patience / 2;
    auto store = c10::make_intrusive<c10d::TCPStore>(launch.address, options);
    connection->store = c10::make_intrusive<c10d::PrefixStore>(launch.prefix, store);
    std::vector<std::string> keys;
    for (int64_t rank = 0; rank < launch.size; ++rank) keys.push_back(format_text("cores/{}", rank));
    connection->store->set(keys[static_cast<size_t>(launch.rank)], bytes(own_cores()));
    connection->store->wait(keys, patience);
    std::vector<std::vector<uint8_t>> cores = connection->store->multiGet(keys);
    result.sharing_cores_ = std::ranges::count(cores, cores[static_cast<size_t>(launch.rank)]);
    connection->gloo =
        c10::make_intrusive<c10d::ProcessGroupGloo>(connection->store, static_cast<int>(launch.rank),
                                                    static_cast<int>(launch.size), gloo_options(launch.address));
    connection->group = c10::make_intrusive<c10d::ProcessGroup>(connection->store, static_cast<int>(launch.rank),
                                                                static_cast<int>(launch.size));
    connection->group->setBackend(c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::GLOO, connection->gloo);
    connection->group->setDefaultBackend(c10d::ProcessGroup::BackendType::GLOO);
    connection->watch =
        std::make_unique<Watch>(c10::make_intrusive<c10d::PrefixStore>(launch.prefix, store->clone()), launch.rank,
                                launch.size, connection->name);
  } catch (const std::exception& error) {
    fail_run("{}the {} processes did not all come to {}:{} within {} s ({})", connection->name, launch.size,
             launch.address, launch.port, patience.count(), first_line(error.what()));
  }
  result.connection_ = std::move(connection);
  result.barrier();
  return result;
}

std::string ProcessGroup::name() const {
  return alone() ? "" : format_text("rank {} of {}: ", rank_, size_);
}

void ProcessGroup::sum(std::vector<double>& values) const {
  if (alone()) return;
  std::vector<at::Tensor> tensors = {
      at::from_blob(values.data(), {static_cast<int64_t>(values.size())}, at::TensorOptions(at::kDouble))};
  connection_->finish([&] { return connection_->gloo->allreduce(tensors); });
}

bool ProcessGroup::any(bool value) const {
  std::vector<double> count = {value ? 1.0 : 0.0};
  sum(count);
  return count[0] > 0;
}

int64_t ProcessGroup::from_first(int64_t value) const {
  if (alone()) return value;
  broadcast({at::from_blob(&value, {1}, at::TensorOptions(at::kLong))}, {0});
  return value;
}

void ProcessGroup::broadcast(const std::vector<at::Tensor>& tensors, const std::vector<int64_t>& owners) const {
  if (alone()) return;
  at::NoGradGuard no_grad;
  std::vector<c10::intrusive_ptr<c10d::Work>> works;
  const auto start = [&](const at::Tensor& tensor, int64_t owner) {
    std::vector<at::Tensor> list = {tensor};
    c10d::BroadcastOptions options;
    options.rootRank = owner;
    works.push_back(connection_->gloo->broadcast(list, options));
  };
  // What is small goes together: a message of its own would cost more than its bytes.
  constexpr uint64_t kSmall = 1 << 18;
  std::map<std::pair<int64_t, at::ScalarType>, std::vector<at::Tensor>> small;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const at::Tensor tensor = tensors[i].detach();
    if (tensor.nbytes() < kSmall && tensors.size() > 1) {
      small[{owners[i], tensor.scalar_type()}].push_back(tensor.view(-1));
    } else {
      start(tensor, owners[i]);
    }
  }
  std::vector<std::pair<at::Tensor, const std::vector<at::Tensor>*>> packets;
  for (const auto& [key, parts] : small) {
    packets.emplace_back(at::cat(parts), &parts);
    start(packets.back().first, key.first);
  }
  for (const auto& work : works) connection_->finish([&] { return work; });
  for (const auto& [packet, parts] : packets) {
    int64_t at = 0;
    for (at::Tensor part : *parts) {
      part.copy_(packet.narrow(0, at, part.numel()));
      at += part.numel();
    }
  }
}

void ProcessGroup::barrier() const {
  if (alone()) return;
  connection_->finish([&] { return connection_->gloo->barrier(); });
}

void ProcessGroup::send_to_first(const at::Tensor& tensor) const {
  std::vector<at::Tensor> tensors = {tensor};
  connection_->finish([&] { return connection_->gloo->send(tensors, 0, 0); });
}

void ProcessGroup::receive(at::Tensor& tensor, int64_t from) const {
  std::vector<at::Tensor> tensors = {tensor};
  connection_->finish([&] { return connection_->gloo->recv(tensors, static_cast<int>(from), 0); });
}

struct GradientReducer::Reducer {
  std::unique_ptr<c10d::Reducer> reducer;
};

namespace {

// c10d advises against find_unused_parameters where all turn out to be used; here it has its reasons.
class NoAdvice : public c10::WarningHandler {
 public:
  void process(const c10::Warning&) override {}
};

}  // namespace

GradientReducer::GradientReducer(const ProcessGroup& group, const ParameterStore& parameters) {
  if (group.alone()) return;
  // Buckets are summed in their order, so it must be about that of the gradients: the last layers first, and last of all what
  // belongs to no layer, the embedding.
  std::vector<ParameterStore::Item> items(parameters.items().rbegin(), parameters.items().rend());
  std::ranges::stable_sort(items, std::greater<>{}, [](const auto& item) { return layer_of(item.first); });
  std::vector<at::Tensor> tensors;
  for (const auto& [name, parameter] : items) tensors.push_back(parameter);
  const std::vector<bool> sparse(tensors.size());
  auto [buckets, limits] = c10d::compute_bucket_assignment_by_size(
      tensors, {c10d::kDefaultFirstBucketBytes, c10d::kDefaultBucketBytesCap}, sparse);
  reducer_ = std::make_unique<Reducer>();
  // find_unused_parameters: some variants leave some without a gradient. It also keeps the buckets as they are here: with
  // buckets by the order of the first step's gradients, the sums of a resumed run would have other bits.
  reducer_->reducer = std::make_unique<c10d::Reducer>(
      tensors, buckets, group.connection_->group, sparse, c10d::kDefaultBucketBytesCap,
      /*find_unused_parameters=*/true, /*gradient_as_bucket_view=*/true, std::unordered_map<size_t, std::string>{},
      c10d::kDefaultFirstBucketBytes,
      /*skip_all_reduce_unused_params=*/false, /*use_python_reducer=*/false, std::vector<int64_t>{});
}

GradientReducer::~GradientReducer() = default;

void GradientReducer::expect_backward(const at::Tensor& loss) {
  if (!reducer_) return;
  NoAdvice no_advice;
  c10::WarningUtils::WarningHandlerGuard guard(&no_advice);
  reducer_->reducer->prepare_for_forward();
  reducer_->reducer->prepare_for_backward({loss});
}

void rethrow_as_lost_process(const ProcessGroup& group) {
  try {
    throw;
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    const std::string why = first_line(error.what());
    if (group.alone() || !is_about_connections(error.what())) throw;
    throw RunError(lost_message(group.name(), why));
  }
}

}  // namespace depthroute
