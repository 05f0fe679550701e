/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Where the API server is and how to prove who we are: from a kubeconfig file or the in-cluster
 * service account. Files are read again when asked (they rotate). Blocking reads of a few small
 * local files; loop thread only. Knows no curl.
 */
#ifndef ALQ_DAEMON_KUBE_CREDENTIALS_H
#define ALQ_DAEMON_KUBE_CREDENTIALS_H

#include <stddef.h>
#include <stdint.h>

#include "base/err.h"

#define ALQ_SERVICE_ACCOUNT_DIR "/var/run/secrets/kubernetes.io/serviceaccount"

struct alq_blob {
    char *data; /* NUL after the last byte; NULL: none */
    size_t len;
};

struct alq_credentials {
    char *server;                     /* "https://host:port[/prefix]", no slash at the end */
    char *proxy;                      /* "", or the kubeconfig's proxy-url */
    char *tls_server_name;            /* NULL: the host of server */
    int is_insecure;                  /* the server's certificate is not checked */
    struct alq_blob ca;               /* PEM; data NULL: the system's authorities */
    struct alq_blob certificate, key; /* PEM; both or none */
    char *token;                      /* bearer token, NULL when there is none (yet) */

    char *token_file;                            /* NULL: token is fixed */
    char *ca_file, *certificate_file, *key_file; /* likewise */

    char *kubeconfig; /* where all this was read; NULL: a service account */
    struct alq_file_version {
        uint64_t device, inode, size;
        int64_t changed_ns;
    } version; /* of the kubeconfig then */
};

/* path of the kubeconfig, or NULL for the service account in dir (ALQ_SERVICE_ACCOUNT_DIR) with
 * KUBERNETES_SERVICE_HOST and _PORT. ALQ_ENOENT: a file, or these, are missing; ALQ_EINVAL: a
 * mistake in the file; ALQ_ENOTSUP: exec and auth-provider plugins, passwords. Free in either case.
 */
int alq_credentials_load(const char *kubeconfig, const char *service_account_dir,
                         struct alq_credentials *c, struct alq_err *err);

/* Parses a kubeconfig's text; paths in it are relative to dir. Reads the files it names. */
int alq_credentials_parse(const char *text, size_t len, const char *dir, const char *what,
                          struct alq_credentials *c, struct alq_err *err);

/* Reads the files again, the kubeconfig too if it is another one than before. *is_changed tells
 * whether anything but the token differs. On an error the old contents stay. */
int alq_credentials_refresh(struct alq_credentials *c, int *is_changed, struct alq_err *err);

void alq_credentials_free(struct alq_credentials *c);

#endif
