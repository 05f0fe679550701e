/* SPDX-License-Identifier: Apache-2.0 */
/*
 * The one thing in which the libraries of the profiles differ besides their exports; compiled once
 * for each with SIM_PROFILE set.
 */
#include "client/fault.h"
#include "cuda/driver.h"

const enum sim_profile driver_profile = SIM_PROFILE;
const enum sim_library sim_library = SIM_LIBRARY_CUDA;
