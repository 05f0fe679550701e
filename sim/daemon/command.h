/* SPDX-License-Identifier: Apache-2.0 */
/*
 * What simctl can do to the machine: commands as JSON objects {"command": NAME, ...}. An unknown
 * command, key or value is an error that says what to give instead. simgpud's thread only.
 *
 *   add            device (an object of the device file)
 *   remove         device; who has it open sees it as lost, nobody else sees it again
 *   describe       device, or none for all
 *   lose, recover  device
 *   xid            device, xid; fail: a CUresult that existing contexts give from then on
 *   ecc            device, kind corrected or uncorrected, count
 *   action         device, action: the recovery action that NVML reports, a number
 *   withhold       device, bytes: taken out of the free ones; 0 gives them back
 *   freeze, thaw   device; percent: what utilisation then shows
 *   fault          entries (globs of names); result, delay_ns, first, times, pid, group, caller,
 * own faults, clear  id processes      all clients, what each holds
 *
 * "device" is an index as a number, an index as text, or a UUID.
 */
#ifndef SIM_DAEMON_COMMAND_H
#define SIM_DAEMON_COMMAND_H

#include "daemon/server.h"

/* The answer to text[0..len): an object, with "error" when the command failed. NULL when out of
 * memory. */
json_t *sim_command_run(struct sim_server *server, const char *text, size_t len);

#endif
