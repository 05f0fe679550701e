/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of cuda_abi.h as the compiler sees them in NVIDIA's header. Constant data for
 * test_abi, no code.
 */
/* The order matters. */
/* clang-format off */
#define __CUDA_API_VERSION_INTERNAL 1
#include <cuda.h>
/* Redeclares what NVIDIA declared: a function type that differs does not compile. */
#include "aliquot/cuda_calls.h"

#include "abi_fact.h"
#include "abi_cuda_theirs.inc"
