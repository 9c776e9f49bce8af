/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tells a service manager how far the daemon is: one datagram on $NOTIFY_SOCKET, as systemd's Type=notify expects it.
 * Without that variable nothing happens. Main thread.
 */
#ifndef RY_NOTIFY_H
#define RY_NOTIFY_H

#ifdef __cplusplus
extern "C" {
#endif

/* "READY=1", "STOPPING=1". 0, or -errno when the manager cannot be reached; nobody needs to stop for that. */
int notify_manager(const char *state);

#ifdef __cplusplus
}
#endif
#endif
