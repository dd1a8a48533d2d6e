/* A driver of simulated GPUs: what pynvml loads as libnvidia-ml.so.1 in tests.

   All GPUs live in one file, FAKE_NVML_FILE, that every process maps, so a trainer and the controller of
   its clock see the same ones. Each GPU has a time of its own that moves only when a test says so
   (fake_nvml_wait, fake_nvml_work, fake_nvml_cycles); so every figure is exact and the same each time. After
   fake_nvml_real_time it moves with that of the machine instead, for programs that look at the clock by it.

   Not modelled: throttling, memory clocks, jitter, clocks that fall when idle. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, UNINITIALIZED = 1, INVALID = 2, NOT_SUPPORTED = 3, NO_PERMISSION = 4, NOT_FOUND = 6, TOO_SMALL = 7, LOST = 15 };
enum { MOST_GPUS = 16, MOST_CALLS = 8192 };

static const double STATIC_W = 75, DYNAMIC_W = 425; /* busy: STATIC_W + DYNAMIC_W * (clock / highest)^3 */

typedef struct {
    double now_ms, energy_mj, power_w; /* power_w: of the last stretch of time */
    double counter_mj;                 /* what the energy counter shows */
    double in_force_ms;                /* when the clock asked for comes into force */
    unsigned clock_mhz, wanted_mhz, locked_mhz; /* locked_mhz: 0 after a reset */
} gpu_t;

typedef struct {
    unsigned gpu, low, high; /* low 0: a reset */
} call_t;

typedef struct {
    unsigned num_gpus, lowest_mhz, highest_mhz, step_mhz, denied, num_calls;
    unsigned slow_below_mhz, lost_gpus, divided; /* lost_gpus: a bit for each */
    double latency_ms, slow_extra_ms, counter_period_ms, blocking_w, real_from_ms;
    gpu_t gpus[MOST_GPUS];
    call_t calls[MOST_CALLS];
} state_t;

static state_t *state;
static int file = -1;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

/* The lock of a file goes with its process, so one that is killed leaves nothing locked. */
static void lock(short kind) {
    struct flock whole = {.l_type = kind, .l_whence = SEEK_SET};
    while (fcntl(file, F_SETLKW, &whole) != 0) {}
}
static void enter(void) { pthread_mutex_lock(&mutex); lock(F_WRLCK); }
static int leave(int code) { lock(F_UNLCK); pthread_mutex_unlock(&mutex); return code; }

static int map_file(const char *path) {
    if (state) munmap(state, sizeof *state);
    if (file >= 0) close(file);
    state = NULL;
    file = path ? open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600) : -1;
    if (file < 0 || ftruncate(file, sizeof *state) != 0) return UNINITIALIZED;
    void *memory = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    if (memory == MAP_FAILED) return UNINITIALIZED;
    state = memory;
    return SUCCESS;
}

/* Time, clocks and energy. */

static double until_change_ms(const gpu_t *gpu) {
    return gpu->wanted_mhz != gpu->clock_mhz ? gpu->in_force_ms - gpu->now_ms : INFINITY;
}

static void spend(gpu_t *gpu, double ms, double power_w) {
    double period = state->counter_period_ms, end_ms = gpu->now_ms + ms;
    double shown_ms = period > 0 ? floor(end_ms / period) * period : end_ms;
    int arrives = ms >= until_change_ms(gpu);
    if (shown_ms >= gpu->now_ms) gpu->counter_mj = gpu->energy_mj + power_w * (shown_ms - gpu->now_ms);
    gpu->energy_mj += power_w * ms;
    gpu->power_w = power_w;
    gpu->now_ms = end_ms;
    if (arrives) gpu->clock_mhz = gpu->wanted_mhz;
}

static double machine_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1e3 + now.tv_nsec / 1e6;
}


/* Waits; a clock that was asked for comes into force meanwhile. */
static void idle(gpu_t *gpu, double ms) {
    double change_ms = until_change_ms(gpu);
    if (change_ms < ms) {
        spend(gpu, change_ms, state->blocking_w);
        ms -= change_ms;
    }
    spend(gpu, ms, state->blocking_w);
}

/* In real time a GPU waits while nobody looks. */
static void catch_up(gpu_t *gpu) {
    double ms = machine_ms() - state->real_from_ms - gpu->now_ms;
    if (state->real_from_ms > 0 && ms > 0) idle(gpu, ms);
}

static unsigned supported(unsigned mhz) {
    if (mhz <= state->lowest_mhz) return state->lowest_mhz;
    if (mhz >= state->highest_mhz) return state->highest_mhz;
    return state->lowest_mhz + (mhz - state->lowest_mhz + state->step_mhz / 2) / state->step_mhz * state->step_mhz;
}

static void want(gpu_t *gpu, unsigned mhz) {
    if (mhz == gpu->wanted_mhz) return;
    gpu->wanted_mhz = mhz;
    gpu->in_force_ms = gpu->now_ms + state->latency_ms + (mhz < state->slow_below_mhz ? state->slow_extra_ms : 0);
    spend(gpu, 0, gpu->power_w);
}

/* Work that is a share of 1: at each clock its whole time and energy; the nearest clock given counts. */
static void work(gpu_t *gpu, unsigned count, const unsigned *mhz, const double *ms, const double *mj) {
    double left = 1;
    while (left > 0) {
        unsigned row = 0;
        for (unsigned i = 1; i < count; i++)
            if (labs((long)mhz[i] - (long)gpu->clock_mhz) < labs((long)mhz[row] - (long)gpu->clock_mhz)) row = i;
        double rest_ms = left * ms[row], change_ms = until_change_ms(gpu);
        left = change_ms < rest_ms ? left - change_ms / ms[row] : 0;
        spend(gpu, fmin(rest_ms, change_ms), mj[row] / ms[row]);
    }
}

/* What tests call. */

int fake_nvml_setup(const char *path, unsigned num_gpus, unsigned lowest_mhz, unsigned highest_mhz,
                    unsigned step_mhz, double latency_ms, double counter_period_ms, double blocking_w) {
    if (num_gpus > MOST_GPUS || map_file(path) != SUCCESS) return INVALID;
    enter();
    memset(state, 0, sizeof *state);
    state->num_gpus = num_gpus;
    state->lowest_mhz = lowest_mhz;
    state->highest_mhz = highest_mhz;
    state->step_mhz = step_mhz;
    state->latency_ms = latency_ms;
    state->counter_period_ms = counter_period_ms;
    state->blocking_w = blocking_w;
    for (unsigned i = 0; i < num_gpus; i++) state->gpus[i].clock_mhz = state->gpus[i].wanted_mhz = highest_mhz;
    return leave(SUCCESS);
}

/* Changes to clocks below one take longer. */
void fake_nvml_slow(unsigned below_mhz, double extra_ms) {
    enter();
    state->slow_below_mhz = below_mhz;
    state->slow_extra_ms = extra_ms;
    leave(0);
}

void fake_nvml_real_time(void) { enter(); state->real_from_ms = machine_ms(); leave(0); }
void fake_nvml_lose(unsigned gpu) { enter(); state->lost_gpus |= 1u << gpu; leave(0); }
void fake_nvml_divide(void) { enter(); state->divided = 1; leave(0); }
void fake_nvml_deny(unsigned denied) { enter(); state->denied = denied; leave(0); }

void fake_nvml_wait(unsigned gpu, double ms) {
    enter();
    idle(&state->gpus[gpu], ms);
    leave(0);
}

void fake_nvml_work(unsigned gpu, unsigned count, const unsigned *mhz, const double *ms, const double *mj) {
    enter();
    work(&state->gpus[gpu], count, mhz, ms, mj);
    leave(0);
}

/* Work of so many million cycles, at the power of the model above. */
void fake_nvml_cycles(unsigned gpu, double millions) {
    unsigned mhz[4096], count = 0;
    double ms[4096], mj[4096];
    enter();
    for (unsigned clock = state->lowest_mhz; clock <= state->highest_mhz && count < 4096; clock += state->step_mhz) {
        mhz[count] = clock;
        ms[count] = 1000 * millions / clock;
        mj[count] = ms[count] * (STATIC_W + DYNAMIC_W * pow((double)clock / state->highest_mhz, 3));
        count++;
    }
    work(&state->gpus[gpu], count, mhz, ms, mj);
    leave(0);
}

double fake_nvml_now_ms(unsigned gpu) { return state->gpus[gpu].now_ms; }
double fake_nvml_energy_mj(unsigned gpu) { return state->gpus[gpu].energy_mj; }
double fake_nvml_until_change_ms(unsigned gpu) { return until_change_ms(&state->gpus[gpu]); }
unsigned fake_nvml_locked_mhz(unsigned gpu) { return state->gpus[gpu].locked_mhz; }
unsigned fake_nvml_num_calls(void) { return state->num_calls; }
void fake_nvml_call(unsigned index, unsigned *call) { memcpy(call, &state->calls[index], sizeof(call_t)); }

/* What NVML has. */

typedef void *device_t;

static gpu_t *of(device_t device) { return &state->gpus[(size_t)device - 1]; }

static int request(device_t device, unsigned low, unsigned high, unsigned target) {
    if (!state) return UNINITIALIZED;
    enter();
    if (state->denied) return leave(NO_PERMISSION);
    if (state->lost_gpus >> ((size_t)device - 1) & 1) return leave(LOST);
    catch_up(of(device));
    if (state->num_calls < MOST_CALLS)
        state->calls[state->num_calls++] = (call_t){(unsigned)((size_t)device - 1), low, high};
    of(device)->locked_mhz = low;
    want(of(device), target);
    return leave(SUCCESS);
}

int nvmlInitWithFlags(unsigned flags) { (void)flags; return state ? SUCCESS : map_file(getenv("FAKE_NVML_FILE")); }
int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { return SUCCESS; }

const char *nvmlErrorString(int code) {
    switch (code) {
    case NO_PERMISSION: return "Insufficient Permissions";
    case NOT_FOUND: return "Not Found";
    case UNINITIALIZED: return "Uninitialized";
    case NOT_SUPPORTED: return "Not Supported";
    case LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

int nvmlDeviceGetCount_v2(unsigned *count) { *count = state->num_gpus; return SUCCESS; }

int nvmlDeviceGetHandleByIndex_v2(unsigned index, device_t *device) {
    if (index >= state->num_gpus) return NOT_FOUND;
    *device = (device_t)(size_t)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetUUID(device_t device, char *text, unsigned length) {
    return snprintf(text, length, "GPU-fake-%zu", (size_t)device - 1) < (int)length ? SUCCESS : TOO_SMALL;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, device_t *device) {
    if (state->divided && !strcmp(uuid, "MIG-fake")) { *device = (device_t)(size_t)1; return SUCCESS; }
    for (unsigned i = 0; i < state->num_gpus; i++) {
        char text[64];
        *device = (device_t)(size_t)(i + 1);
        nvmlDeviceGetUUID(*device, text, sizeof text);
        if (!strcmp(text, uuid)) return SUCCESS;
    }
    return NOT_FOUND;
}

int nvmlDeviceGetMigMode(device_t device, unsigned *current, unsigned *pending) {
    (void)device;
    *current = *pending = state->divided;
    return SUCCESS;
}


int nvmlDeviceGetName(device_t device, char *text, unsigned length) {
    (void)device;
    return snprintf(text, length, "Simulated GPU") < (int)length ? SUCCESS : TOO_SMALL;
}

int nvmlDeviceSetGpuLockedClocks(device_t device, unsigned low, unsigned high) {
    return low > high || low == 0 ? INVALID : request(device, low, high, supported(high));
}

int nvmlDeviceResetGpuLockedClocks(device_t device) { return request(device, 0, 0, state->highest_mhz); }

int nvmlDeviceGetSupportedMemoryClocks(device_t device, unsigned *count, unsigned *mhz) {
    (void)device;
    unsigned room = *count;
    *count = 1;
    if (!mhz || room < 1) return TOO_SMALL;
    mhz[0] = 1593;
    return SUCCESS;
}

int nvmlDeviceGetSupportedGraphicsClocks(device_t device, unsigned memory_mhz, unsigned *count, unsigned *mhz) {
    (void)device;
    if (memory_mhz != 1593) return NOT_FOUND;
    unsigned room = *count;
    *count = (state->highest_mhz - state->lowest_mhz) / state->step_mhz + 1;
    if (!mhz || room < *count) return TOO_SMALL;
    for (unsigned i = 0; i < *count; i++) mhz[i] = state->highest_mhz - i * state->step_mhz;
    return SUCCESS;
}

int nvmlDeviceGetClockInfo(device_t device, unsigned type, unsigned *mhz) {
    enter();
    catch_up(of(device));
    *mhz = type == 2 ? 1593 : of(device)->clock_mhz;
    return leave(SUCCESS);
}

int nvmlDeviceGetTotalEnergyConsumption(device_t device, unsigned long long *mj) {
    enter();
    catch_up(of(device));
    *mj = (unsigned long long)of(device)->counter_mj;
    return leave(SUCCESS);
}

int nvmlDeviceGetPowerUsage(device_t device, unsigned *mw) {
    *mw = (unsigned)(1000 * of(device)->power_w + 0.5);
    return SUCCESS;
}
