/* SPDX-License-Identifier: BSD-3-Clause
 * Copyright (c) 2026 The karst authors
 */
/* Memory of other processes: structures and functions for lcores and sessions. */
#ifndef ENGINE_SPACE_PRIV_H
#define ENGINE_SPACE_PRIV_H

#include <pthread.h>
#include <stdatomic.h>
#include <sys/queue.h>
#include <sys/types.h>
#include <sys/uio.h>

#include "karst_files.h"
#include "karst_space.h"
#include "karst_vma.h"
#include "share.h"
#include "window.h"

struct karst_space {
	struct karst_engine *e;
	pid_t pid;
	int pidfd;
	int procfd;   /* /proc/PID, which keeps referring to one process; -1: cannot be opened */
	bool certain; /* that process is known to be the program's */
	int memfd;    /* its address space; -1: not sent */
	struct karst_space_opener opener;
	uid_t uid;
	gid_t gid;
	_Atomic unsigned int on_demand; /* number of regions on demand */
	_Atomic int mapsfd; /* opened with the first of them: list of mappings; -1: it may not be
			     * read */
	pthread_mutex_t maps_lock; /* file position of mapsfd, while a copy reads the list */
	struct eng_share *share;   /* account that its regions are charged to; NULL: none */
	LIST_HEAD(, karst_space_region) regions;
	_Atomic uint64_t alive_ns; /* when the process was last known to be alive; unmapped.c */
	_Atomic bool failed;
	_Atomic bool silenced; /* an lcore has blocked at its doorbells */
	_Atomic uint32_t refs; /* its creator, and copies that may outlast karst_space_destroy() */
	struct eng_atomics *atomics;
	/* deferred.c; any thread, relaxed, except copies */
	struct {
		_Atomic uint64_t until_ns; /* end of the time in which it is slow */
		_Atomic uint64_t ask_ns;   /* until then drivers measure its copies */
		_Atomic uint64_t window_ns;
		_Atomic uint64_t spent_ns; /* time in that window that drivers were asleep or busy
					    * with it */
		_Atomic uint64_t served_ns;
		_Atomic uint32_t times;  /* how often it has become slow */
		_Atomic bool told;       /* logged that it is slow */
		_Atomic uint32_t queued; /* copies that wait for a copier */
		_Atomic uint32_t copies; /* parts of copies that outlast their turn */
	} slow;
	int watch_fd; /* eventfd that signals a failure; -1: none */
};

struct karst_space_region {
	struct eng_window w;
	struct karst_space *space;
	LIST_ENTRY(karst_space_region) next;
	uint64_t addr;
	uint64_t len;
	bool unmapped; /* some of it is copied */
	uint64_t shared_bytes;
	uint64_t migrated_bytes;
	unsigned int nmaps; /* mappings counted against the process's limit */
	struct eng_piece piece[];
};

/* A piece that is being mapped, and what was found out about it. */
struct eng_source {
	const struct karst_ctl_piece *ctl;
	uint64_t addr, len; /* the part that the region needs */
	int fd;             /* -1: copied */
	uint64_t off;
	uint32_t page;
};

/**
 * Opens what @ctl names and checks that all of it can be mapped, for writing if @write. src->fd
 * stays -1 if the bytes have to be copied.  Errors and @why as karst_space_map().
 */
int eng_piece_open(const struct karst_space *s, const struct karst_ctl_piece *ctl, const int *fds,
	unsigned int nfds, bool write, struct eng_source *src, char *why);

/* Checks that the bytes to be copied exist, and may be written if @write.  -EFAULT, -EPERM */
int eng_piece_probe(struct karst_space *s, uint64_t addr, uint64_t len, bool write, char *why);

/* --- reach.c --- */

/* Opens something that only the program's user may open; -1: that user may not either. */
int eng_space_open(const struct karst_space *s, const struct karst_files_ask *ask);

/* Opens the list of the program's mappings; -1: its user may not read it. */
int eng_space_maps(const struct karst_space *s);

/* Whether the program may read (write) all of the range.  *reaches: bytes up to the first one that
 * it may not. */
bool eng_space_may(
	struct karst_vmas *vmas, uint64_t addr, uint64_t len, bool write, uint64_t *reaches);

/* Moves bytes between this process and the program's, through both lists in order, as
 * process_vm_readv() and process_vm_writev() do.  May wait for the program's page faults.
 * @return bytes moved before the first address that could not be reached, or a negative errno. */
ssize_t eng_space_read(struct karst_space *s, const struct iovec *local, const struct iovec *remote,
	unsigned int n);
ssize_t eng_space_write(struct karst_space *s, const struct iovec *local,
	const struct iovec *remote, unsigned int n);

/* --- space.c --- */

/* Marks the process's registered memory as not usable any more, for any reason.  May be called by a
 * signal handler. */
void eng_space_fail(struct karst_space *s);
/* No lcore shall poll its program's doorbells any more; signalled as a failure is. */
void eng_space_silence(struct karst_space *s);

/* Hold a reference, independent of karst_space_destroy(). */
void eng_space_get(struct karst_space *s);
void eng_space_put(struct karst_space *s);

/* --- atomics.c --- */

/* Serializes the atomics on one address space. */
struct eng_atomics {
	LIST_ENTRY(eng_atomics) next;
	dev_t dev; /* file that the memory is reached by */
	ino_t ino; /* 0: not reached */
	struct timespec made;
	uint32_t users;
	pthread_mutex_t lock;
	_Atomic uint32_t stuck; /* threads in an atomic that are written off: one of them has the
				 * lock */
};
/* @memfd: a descriptor of the memory, to stay open until eng_atomics_put(); -1: none.
 * @return NULL: out of memory */
struct eng_atomics *eng_atomics_get(int memfd);
void eng_atomics_put(struct eng_atomics *a);

#endif /* ENGINE_SPACE_PRIV_H */
