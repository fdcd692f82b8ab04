// The precompiled header of everything that includes ATen, which takes half a minute to parse. Left out on purpose:
// <torch/torch.h> and the autograd headers, whose inline code every file would compile again; the file that needs
// them includes them.
#pragma once
#include <ATen/ATen.h>

#include "base_pch.h"
