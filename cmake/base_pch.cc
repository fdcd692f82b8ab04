// Carries the precompiled header cmake/base_pch.h; holds no code.
