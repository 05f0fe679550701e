/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The numbers of nvml_abi.h as the compiler sees them in our header. Constant data for test_abi, no
 * code.
 */
/* The order matters. */
/* clang-format off */
#include "aliquot/nvml_abi.h"

#include "abi_fact.h"
#include "abi_nvml_ours.inc"
