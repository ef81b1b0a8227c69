/* Threads of the core: one that encodes what waits in queues, one that helps to decode a batch. No Python here.
 *
 * Neither ever needs the GIL, and nobody who holds a store's lock waits for it, so a process may fork while they work:
 * before a fork the encoder comes to rest between two observations, and the new process starts its own when it needs
 * one. Both sleep while there is nothing to do, take no signals, and just stop when the process ends. See _core.c.
 */
#ifndef LEGROOM_THREADS_H
#define LEGROOM_THREADS_H
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#define THREAD_STACK ((size_t)256 << 10)

static inline uint64_t nanoseconds(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

static int several_processors(void) {
#ifdef __linux__
    cpu_set_t set;
    if (!sched_getaffinity(0, sizeof set, &set)) return CPU_COUNT(&set) > 1;
#endif
    return sysconf(_SC_NPROCESSORS_ONLN) > 1;
}

/* Starts a thread that takes no signals; 0, or -1 where there can be none. */
static int start_thread(void *(*work)(void *)) {
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (pthread_attr_init(&attributes)) return -1;
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attributes, THREAD_STACK);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    int problem = pthread_create(&thread, &attributes, work, NULL);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    return problem ? -1 : 0;
}

/* ---- the encoder: works off a list of jobs, each until it says that nothing is left ---- */

typedef struct job {
    int (*step)(struct job *);  /* does a little; 0 when nothing is left for now */
    int (*waiting)(struct job *);   /* whether there is enough to be worth a call */
    struct job *next;
    int listed;                 /* in the list, or being worked on */
} job;

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake, rest;
    job *first, *now;
    int running, resting;       /* resting: so many callers want it to work on nothing */
} encoder = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .rest = PTHREAD_COND_INITIALIZER};

static void *encode_for_ever(void *ignored) {
    (void)ignored;
    pthread_mutex_lock(&encoder.lock);
    for (;;) {
        while (!encoder.first || encoder.resting) pthread_cond_wait(&encoder.wake, &encoder.lock);
        job *j = encoder.now = encoder.first;
        encoder.first = j->next;
        pthread_mutex_unlock(&encoder.lock);
        int more = 1;
        while (more && !__atomic_load_n(&encoder.resting, __ATOMIC_ACQUIRE)) more = j->step(j);
        pthread_mutex_lock(&encoder.lock);
        __atomic_store_n(&j->listed, 0, __ATOMIC_SEQ_CST);
        if (more || j->waiting(j)) { j->next = encoder.first; encoder.first = j; __atomic_store_n(&j->listed, 1, __ATOMIC_SEQ_CST); }
        encoder.now = NULL;
        pthread_cond_broadcast(&encoder.rest);
    }
    return NULL;
}

/* Hands a job to the encoder unless it has it; -1 where there can be no thread. */
static int hand_over(job *j) {
    if (__atomic_load_n(&j->listed, __ATOMIC_SEQ_CST)) return 0;
    int problem = 0;
    pthread_mutex_lock(&encoder.lock);
    if (!encoder.running) {
        problem = start_thread(encode_for_ever);
        encoder.running = !problem;
    }
    if (!problem && !j->listed) {
        j->next = encoder.first; encoder.first = j;
        __atomic_store_n(&j->listed, 1, __ATOMIC_SEQ_CST);
        pthread_cond_signal(&encoder.wake);
    }
    pthread_mutex_unlock(&encoder.lock);
    return problem;
}

/* Has the encoder come to rest between two steps, until it may go on; its lock is held. */
static void bring_to_rest(void) {
    __atomic_add_fetch(&encoder.resting, 1, __ATOMIC_SEQ_CST);
    while (encoder.now) pthread_cond_wait(&encoder.rest, &encoder.lock);
}
static void let_go_on(void) {
    if (!__atomic_sub_fetch(&encoder.resting, 1, __ATOMIC_SEQ_CST) && encoder.first) pthread_cond_signal(&encoder.wake);
}

/* Takes a job back: the encoder does not know it afterwards. */
static void take_back(job *j) {
    pthread_mutex_lock(&encoder.lock);
    bring_to_rest();
    for (job **at = &encoder.first; *at; at = &(*at)->next)
        if (*at == j) { *at = j->next; break; }
    __atomic_store_n(&j->listed, 0, __ATOMIC_SEQ_CST);
    let_go_on();
    pthread_mutex_unlock(&encoder.lock);
}

/* ---- the helper: does parts of one batch at a time, beside the caller ---- */

static struct {
    pthread_mutex_t lock;
    pthread_cond_t wake, rest;
    void (*work)(void *, int);
    void *batch;                /* what waits for help; NULL: nothing */
    int busy, running, helping; /* busy: some caller uses the helper */
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER, .rest = PTHREAD_COND_INITIALIZER};

static void *help_for_ever(void *ignored) {
    (void)ignored;
    pthread_mutex_lock(&helper.lock);
    for (;;) {
        while (!helper.batch) pthread_cond_wait(&helper.wake, &helper.lock);
        void *batch = helper.batch;
        helper.batch = NULL; helper.helping = 1;
        pthread_mutex_unlock(&helper.lock);
        helper.work(batch, 1);
        pthread_mutex_lock(&helper.lock);
        helper.helping = 0;
        pthread_cond_broadcast(&helper.rest);
    }
    return NULL;
}

/* Calls work(batch, 0) here and, if the helper is free and comes in time, work(batch, 1) beside it; both share it out. */
static void work_together(void (*work)(void *, int), void *batch) {
    pthread_mutex_lock(&helper.lock);
    int alone = helper.busy || (!helper.running && start_thread(help_for_ever));
    if (!alone) {
        helper.running = helper.busy = 1;
        helper.work = work; helper.batch = batch;
        pthread_cond_signal(&helper.wake);
    }
    pthread_mutex_unlock(&helper.lock);
    work(batch, 0);
    if (alone) return;
    pthread_mutex_lock(&helper.lock);
    helper.batch = NULL;        /* too late to begin */
    while (helper.helping) pthread_cond_wait(&helper.rest, &helper.lock);
    helper.busy = 0;
    pthread_mutex_unlock(&helper.lock);
}

/* ---- forks ---- */

static void before_fork(void) {
    pthread_mutex_lock(&encoder.lock);
    bring_to_rest();
    pthread_mutex_lock(&helper.lock);
}
static void after_fork(void) {
    let_go_on();
    pthread_mutex_unlock(&helper.lock);
    pthread_mutex_unlock(&encoder.lock);
}
static void in_fork(void) {     /* no thread but this one: what others waited for nobody waits for */
    pthread_mutex_init(&encoder.lock, NULL); pthread_cond_init(&encoder.wake, NULL); pthread_cond_init(&encoder.rest, NULL);
    pthread_mutex_init(&holding, NULL);
    pthread_mutex_init(&helper.lock, NULL); pthread_cond_init(&helper.wake, NULL); pthread_cond_init(&helper.rest, NULL);
    encoder.running = encoder.resting = 0; encoder.now = NULL;
    for (job *j = encoder.first, *next; j; j = next) { next = j->next; j->next = NULL; j->listed = 0; }
    encoder.first = NULL;
    helper.running = helper.busy = helper.helping = 0; helper.batch = NULL;
}
static void watch_forks(void) {
    static int watching;
    if (!watching) watching = !pthread_atfork(before_fork, after_fork, in_fork);
}
#endif
