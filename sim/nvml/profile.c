/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The driver profile of this build of the library; compiled once for each with SIM_PROFILE set.
 */
#include "client/fault.h"
#include "nvml/nvml.h"

const enum sim_profile nvml_profile = SIM_PROFILE;
const enum sim_library sim_library = SIM_LIBRARY_NVML;
