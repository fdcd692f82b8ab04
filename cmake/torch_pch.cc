// Carries the precompiled header cmake/torch_pch.h; holds no code.
