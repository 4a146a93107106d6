// A stand-in for libcuda.so.1: enough of the driver for the engine, on this CPU, and as bad as
// asked.
//
// Device memory is host memory; a stream is a thread; kernels are those of ../device, run by the
// shim. Whatever the engine must not do (copies outside of an allocation, launches that a card
// would not survive, memory given back while it is in use) ends the process with a message.
//
// Environment:
//   STANDIN_DEVICES=0        cuInit finds no card
//   STANDIN_VERSION=11040    what cuDriverGetVersion says
//   STANDIN_CAPABILITY=75    compute capability times ten, with the limits that belong to it
//   STANDIN_EXCLUSIVE=FILE   compute mode EXCLUSIVE_PROCESS: who has a context holds a lock on FILE
//   STANDIN_MEMORY=1048576   bytes of device memory
//   STANDIN_DELAY_MICROS=200 each operation of a stream takes up to that long, at random
//   STANDIN_SEED=1           of the delays
//   STANDIN_CALL_MICROS=5    each call takes that long at least
//   STANDIN_STICKY=context   a sticky error ends with its context, not only with the process
//   STANDIN_STRAY=700        what the shim finds wrong in a kernel is this error of the kernel, as
//                            on a card, instead of the end of the process
//   STANDIN_FAULTS=cuLaunchKernel@3=719,kernel@5+=hang,cuMemAlloc_v2@2=2
//     the third launch fails; every kernel from the fifth on never ends; ...
//     At `kernel`, which counts kernels as they run: a code fails later, as real kernels do; `hang`
//     never ends; `wrong` flips bits of the destinations. At a function: a code is returned; `hang`
//     never returns; `crash` ends the process.
//   STANDIN_FAULTS_WHILE=FILE calls count, and fail, only while FILE exists
#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include "../job.h"
#include "../shim/fiber.h"

struct GeometryRow {
    const char *name;
    uint32_t numbers[5];
};
extern "C" const char *recoded_shim_launch(const char *name, const shim::Launch *launch);
extern "C" bool recoded_shim_geometry(size_t index, GeometryRow *row);

namespace {

using Result = int;
constexpr Result OK = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, UNAVAILABLE = 46, NO_DEVICE = 100,
                 INVALID_DEVICE = 101, INVALID_CONTEXT = 201, NOT_FOUND = 500, NOT_READY = 600,
                 ALREADY_REGISTERED = 712, NOT_REGISTERED = 713;
constexpr uintptr_t PAGE_BYTES = 4096;
constexpr int HANG = -1, WRONG = -2, CRASH = -3;

[[noreturn]] void die(const std::string &message) {
    fprintf(stderr, "stand-in driver: %s\n", message.c_str());
    abort();
}

uint64_t number(const char *name, uint64_t otherwise) {
    const char *text = getenv(name);
    return text ? strtoull(text, nullptr, 10) : otherwise;
}

// Whether an error makes its context useless.
bool is_sticky(int code) { return code >= 700 && code != 701; }

struct Fault {
    std::string call;
    uint64_t from, to;
    int what;
};

std::vector<Fault> parse_faults() {
    std::vector<Fault> faults;
    const char *text = getenv("STANDIN_FAULTS");
    std::string rest = text ? text : "";
    while (!rest.empty()) {
        const std::string item = rest.substr(0, rest.find(','));
        rest = rest.size() > item.size() ? rest.substr(item.size() + 1) : "";
        const size_t at = item.find('@'), equals = item.find('=');
        if (at == std::string::npos || equals == std::string::npos) die("bad fault " + item);
        const std::string count = item.substr(at + 1, equals - at - 1), what = item.substr(equals + 1);
        const uint64_t from = strtoull(count.c_str(), nullptr, 10);
        const int code = what == "hang"    ? HANG
                         : what == "wrong" ? WRONG
                         : what == "crash" ? CRASH
                                           : atoi(what.c_str());
        faults.push_back({item.substr(0, at), from, count.back() == '+' ? UINT64_MAX : from, code});
    }
    return faults;
}

// Never destroyed: streams run on while the process ends.
template <typename T> T &forever() { return *new T; }

std::mutex &global = forever<std::mutex>();
auto &calls = forever<std::map<std::string, uint64_t>>();

// What is to go wrong at this occurrence of `call`: 0 for nothing.
int fault(const char *call) {
    static const auto &faults = *new std::vector<Fault>(parse_faults());
    static const char *file = getenv("STANDIN_FAULTS_WHILE");
    if (file && access(file, F_OK) != 0) return 0;
    std::lock_guard<std::mutex> lock(global);
    const uint64_t count = ++calls[call];
    for (const Fault &fault : faults)
        if (fault.call == call && fault.from <= count && count <= fault.to) return fault.what;
    return 0;
}

uint64_t capability() { return number("STANDIN_CAPABILITY", 90); }

// What a kernel may have of shared memory once it has asked for it: CUDA C++ Programming Guide,
// compute capabilities.
uint32_t shared_max() {
    switch (capability()) {
    case 75: return 64 << 10;
    case 80: return 163 << 10;
    case 86:
    case 89: return 99 << 10;
    default: return 227 << 10;
    }
}
constexpr uint32_t SHARED_UNASKED = 48 << 10, THREADS_MAX = 1024;

// Device memory and pinned host memory, by their starts.
struct Pinned {
    size_t bytes;
    void *context;
};
auto &allocations = forever<std::map<uintptr_t, size_t>>();
auto &pinned = forever<std::map<uintptr_t, Pinned>>();
size_t allocated;

bool contains(const std::map<uintptr_t, size_t> &ranges, uintptr_t start, size_t bytes) {
    auto after = ranges.upper_bound(start);
    if (after == ranges.begin()) return false;
    --after;
    return start + bytes <= after->first + after->second;
}

struct Context {
    std::atomic<int> error{0};
    std::atomic<bool> cancelled{false};
};
std::atomic<int> process_error{0};

// An error of a kernel or a call that ends its context, and the process's use of the card with it
// unless the test wants otherwise.
void fail(Context &of, int code) {
    const char *sticky = getenv("STANDIN_STICKY");
    of.error = code;
    if (!sticky || std::string(sticky) != "context") process_error = code;
}

struct Operation {
    std::function<void()> run;
    uintptr_t host = 0;
    size_t bytes = 0;
};

struct Stream {
    std::shared_ptr<Context> context;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<Operation> waiting;
    bool stopped = false;
    std::thread thread;

    explicit Stream(std::shared_ptr<Context> of) : context(std::move(of)) {
        thread = std::thread([this] { work(); });
    }

    void work() {
        static std::atomic<uint64_t> streams{0};
        std::mt19937_64 random(number("STANDIN_SEED", 1) + streams++);
        const uint64_t delay = number("STANDIN_DELAY_MICROS", 0);
        for (;;) {
            std::unique_lock<std::mutex> lock(mutex);
            changed.wait(lock, [this] { return stopped || !waiting.empty(); });
            if (waiting.empty()) return;
            Operation &next = waiting.front(); // it stays: its memory is in use until it is done
            lock.unlock();
            if (delay) std::this_thread::sleep_for(std::chrono::microseconds(random() % delay));
            if (!context->cancelled && !context->error) next.run();
            lock.lock();
            waiting.pop_front();
        }
    }

    void push(Operation operation) {
        std::lock_guard<std::mutex> lock(mutex);
        waiting.push_back(std::move(operation));
        changed.notify_one();
    }

    bool uses(uintptr_t start, size_t bytes) {
        std::lock_guard<std::mutex> lock(mutex);
        return std::any_of(waiting.begin(), waiting.end(), [&](const Operation &operation) {
            return operation.host < start + bytes && start < operation.host + operation.bytes;
        });
    }

    bool is_busy() {
        std::lock_guard<std::mutex> lock(mutex);
        return !waiting.empty();
    }

    // Waits for what is in it, unless the context was cancelled.
    void stop() {
        {
            std::lock_guard<std::mutex> lock(mutex);
            stopped = true;
            changed.notify_one();
        }
        thread.join();
    }
};

struct Event {
    std::shared_ptr<Context> context;
    std::shared_ptr<std::atomic<uint64_t>> done = std::make_shared<std::atomic<uint64_t>>(0);
    uint64_t recorded = 0;
};

struct Function {
    std::string name;
    GeometryRow geometry;
    uint32_t shared_allowed = SHARED_UNASKED;
};

auto &contexts = forever<std::map<void *, std::shared_ptr<Context>>>();
auto &streams = forever<std::map<void *, std::unique_ptr<Stream>>>();
thread_local void *current;

std::shared_ptr<Context> context() {
    std::lock_guard<std::mutex> lock(global);
    auto found = contexts.find(current);
    return found == contexts.end() ? nullptr : found->second;
}

Stream *stream_of(void *handle) {
    std::lock_guard<std::mutex> lock(global);
    auto found = streams.find(handle);
    if (found == streams.end()) die("a stream that does not exist");
    return found->second.get();
}

[[noreturn]] void never() {
    for (;;) std::this_thread::sleep_for(std::chrono::hours(1));
}

Result enter(const char *call) {
    if (const uint64_t micros = number("STANDIN_CALL_MICROS", 0))
        std::this_thread::sleep_for(std::chrono::microseconds(micros));
    const int what = fault(call);
    if (what == CRASH) die(std::string("crash asked for at ") + call);
    if (what == HANG) never();
    if (is_sticky(what)) {
        Context none;
        auto of = context();
        fail(of ? *of : none, what);
    }
    if (what > 0) return what;
    if (process_error) return process_error;
    auto of = context();
    return of && of->error ? of->error.load() : OK;
}

#define ENTER                                                                                      \
    if (Result result = enter(__func__)) return result
#define ENTER_CONTEXT                                                                              \
    ENTER;                                                                                         \
    if (!context()) return INVALID_CONTEXT

struct Launch {
    const Function *function;
    shim::Launch shim;
};

void run(Context &of, const Launch &launch) {
    const char *name = launch.function->name.c_str();
    const char *message = recoded_shim_launch(name, &launch.shim);
    if (message == nullptr) return;
    if (const uint64_t code = number("STANDIN_STRAY", 0)) return fail(of, (int)code);
    die(std::string("kernel ") + name + ": " + message);
}

void run_kernel(const std::shared_ptr<Context> &of, const Launch &launch) {
    const int what = fault("kernel");
    if (what == HANG)
        while (!of->cancelled) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    else if (what > 0)
        fail(*of, what);
    else
        run(*of, launch);
    if (what == WRONG)
        for (uint32_t index = 0; index < launch.shim.jobs_count; index++) {
            const Job &job = launch.shim.jobs[index];
            // What a kernel prepares for another one may not be as many rows.
            for (uint64_t row = 0; row < job.rows; row++) {
                const uint64_t at = job.destinations + row * job.destination_stride;
                if (at < launch.shim.arena_bytes) launch.shim.arena[at] ^= 0x40;
            }
        }
}

} // namespace

extern "C" {

Result cuInit(unsigned) {
    ENTER;
    return number("STANDIN_DEVICES", 1) == 0 ? NO_DEVICE : OK;
}
Result cuDriverGetVersion(int *version) {
    ENTER;
    *version = (int)number("STANDIN_VERSION", 13000);
    return OK;
}
// Asked by NVIDIA's run-time compiler wherever it finds a driver, and called without a look whether
// it is there. It does without the table.
Result cuGetExportTable(const void **table, const void *) {
    *table = nullptr;
    return NOT_FOUND;
}
Result cuDeviceGetCount(int *count) {
    ENTER;
    *count = (int)number("STANDIN_DEVICES", 1);
    return OK;
}
Result cuDeviceGet(int *device, int ordinal) {
    ENTER;
    *device = ordinal;
    return ordinal < (int)number("STANDIN_DEVICES", 1) ? OK : INVALID_DEVICE;
}
Result cuDeviceGetName(char *name, int length, int) {
    ENTER;
    snprintf(name, (size_t)length, "stand-in");
    return OK;
}
Result cuDeviceTotalMem_v2(size_t *bytes, int) {
    ENTER;
    *bytes = number("STANDIN_MEMORY", 1ull << 30);
    return OK;
}
Result cuDeviceGetAttribute(int *value, int attribute, int) {
    ENTER;
    // Multiprocessors, compute mode, and the compute capability, major and minor.
    switch (attribute) {
    case 16: *value = 4; break;
    case 20: *value = getenv("STANDIN_EXCLUSIVE") ? 3 : 0; break;
    case 75: *value = (int)capability() / 10; break;
    case 76: *value = (int)capability() % 10; break;
    default: *value = 0;
    }
    return OK;
}

// Whether this process may have a context: in EXCLUSIVE_PROCESS mode the first one to ask has the
// card for as long as it lives. (A real driver releases it with the last context.)
static bool is_ours() {
    const char *path = getenv("STANDIN_EXCLUSIVE");
    if (!path) return true;
    static const int file = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    return file >= 0 && flock(file, LOCK_EX | LOCK_NB) == 0;
}

Result cuCtxCreate_v3(void **handle, void *, int, unsigned, int) {
    ENTER;
    if (!is_ours()) return UNAVAILABLE;
    auto created = std::make_shared<Context>();
    created->error = process_error.load();
    std::lock_guard<std::mutex> lock(global);
    contexts[created.get()] = created;
    current = *handle = created.get();
    return OK;
}
Result cuCtxDestroy_v2(void *handle) {
    const int what = fault(__func__);
    if (what == HANG) never();
    std::vector<std::unique_ptr<Stream>> stopping;
    {
        std::lock_guard<std::mutex> lock(global);
        auto found = contexts.find(handle);
        if (found == contexts.end()) die("a context that does not exist is destroyed");
        found->second->cancelled = true;
        for (auto stream = streams.begin(); stream != streams.end();) {
            if (stream->second->context == found->second) {
                stopping.push_back(std::move(stream->second));
                stream = streams.erase(stream);
            } else {
                ++stream;
            }
        }
        contexts.erase(found);
        for (auto range = pinned.begin(); range != pinned.end();) {
            if (range->second.context != handle) {
                ++range;
                continue;
            }
            for (auto &stream : streams)
                if (stream.second->uses(range->first, range->second.bytes))
                    die("a context is destroyed while another one copies memory that it has pinned");
            range = pinned.erase(range);
        }
        if (current == handle) current = nullptr;
    }
    for (auto &stream : stopping) stream->stop();
    return what > 0 ? what : OK;
}
Result cuCtxSetCurrent(void *handle) {
    const int what = fault(__func__);
    if (what > 0) return what;
    current = handle;
    return OK;
}
Result cuCtxGetCurrent(void **handle) {
    *handle = current;
    return OK;
}

Result cuStreamCreate(void **handle, unsigned) {
    ENTER_CONTEXT;
    auto created = std::make_unique<Stream>(context());
    std::lock_guard<std::mutex> lock(global);
    *handle = created.get();
    streams[created.get()] = std::move(created);
    return OK;
}
Result cuStreamDestroy_v2(void *handle) {
    ENTER_CONTEXT;
    stream_of(handle)->stop();
    std::lock_guard<std::mutex> lock(global);
    streams.erase(handle);
    return OK;
}
Result cuEventCreate(void **handle, unsigned) {
    ENTER_CONTEXT;
    *handle = new Event{context()};
    return OK;
}
Result cuEventDestroy_v2(void *handle) {
    ENTER_CONTEXT;
    delete (Event *)handle;
    return OK;
}
Result cuEventRecord(void *handle, void *stream) {
    ENTER_CONTEXT;
    auto *event = (Event *)handle;
    const uint64_t mark = ++event->recorded;
    auto done = event->done;
    stream_of(stream)->push({[done, mark] { *done = mark; }});
    return OK;
}
Result cuEventQuery(void *handle) {
    ENTER_CONTEXT;
    auto *event = (Event *)handle;
    if (event->context->error) return event->context->error;
    return *event->done == event->recorded ? OK : NOT_READY;
}

Result cuMemAlloc_v2(uint64_t *start, size_t bytes) {
    ENTER_CONTEXT;
    std::lock_guard<std::mutex> lock(global);
    if (bytes == 0) return INVALID_VALUE;
    if (allocated + bytes > number("STANDIN_MEMORY", 1ull << 30)) return OUT_OF_MEMORY;
    void *memory = aligned_alloc(256, (bytes + 255) & ~(size_t)255);
    memset(memory, 0xA5, bytes);
    *start = (uint64_t)memory;
    allocations[*start] = bytes;
    allocated += bytes;
    return OK;
}
Result cuMemFree_v2(uint64_t start) {
    ENTER_CONTEXT;
    std::lock_guard<std::mutex> lock(global);
    auto found = allocations.find(start);
    if (found == allocations.end()) die("device memory that does not exist is freed");
    for (auto &stream : streams)
        if (stream.second->context.get() == current && stream.second->is_busy() &&
            getenv("STANDIN_STRICT_FREE"))
            die("device memory is freed while a stream is busy");
    allocated -= found->second;
    allocations.erase(found);
    free((void *)start);
    return OK;
}
Result cuMemHostRegister_v2(void *start, size_t bytes, unsigned) {
    ENTER_CONTEXT;
    std::lock_guard<std::mutex> lock(global);
    // Pages, not bytes, are pinned.
    const uintptr_t first = (uintptr_t)start & ~(PAGE_BYTES - 1);
    const uintptr_t last = ((uintptr_t)start + bytes + PAGE_BYTES - 1) & ~(PAGE_BYTES - 1);
    for (const auto &range : pinned)
        if (range.first < last && first < range.first + range.second.bytes) return ALREADY_REGISTERED;
    pinned[first] = {last - first, current};
    return OK;
}
Result cuMemHostUnregister(void *start) {
    ENTER_CONTEXT;
    std::lock_guard<std::mutex> lock(global);
    auto found = pinned.find((uintptr_t)start & ~(PAGE_BYTES - 1));
    if (found == pinned.end()) return NOT_REGISTERED;
    for (auto &stream : streams)
        if (stream.second->uses(found->first, found->second.bytes))
            die("host memory is unpinned while a copy uses it");
    pinned.erase(found);
    return OK;
}

enum class Host { Pinned, Pageable, Half };

// As cards have it: host memory is pinned or not, but not partly.
static Host host(uintptr_t start, size_t bytes) {
    for (const auto &range : pinned) {
        const uintptr_t last = range.first + range.second.bytes;
        if (start >= last || range.first >= start + bytes) continue;
        return range.first <= start && start + bytes <= last ? Host::Pinned : Host::Half;
    }
    return Host::Pageable;
}

// Puts a copy into a stream. One of memory that is not pinned keeps its caller until it is done.
static Result enqueue(void *handle, uintptr_t start, size_t bytes, std::function<void()> copy) {
    Host kind;
    {
        std::lock_guard<std::mutex> lock(global);
        kind = host(start, bytes);
    }
    if (kind == Host::Half) return INVALID_VALUE;
    Stream *stream = stream_of(handle);
    stream->push({std::move(copy), start, bytes});
    while (kind == Host::Pageable && stream->is_busy())
        std::this_thread::sleep_for(std::chrono::microseconds(20));
    return OK;
}

Result cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
    ENTER_CONTEXT;
    {
        std::lock_guard<std::mutex> lock(global);
        if (bytes && !contains(allocations, to, bytes)) die("a copy to outside of device memory");
    }
    return enqueue(stream, (uintptr_t)from, bytes, [=] { memcpy((void *)to, from, bytes); });
}
Result cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
    ENTER_CONTEXT;
    {
        std::lock_guard<std::mutex> lock(global);
        if (bytes && !contains(allocations, from, bytes)) die("a copy from outside of device memory");
    }
    return enqueue(stream, (uintptr_t)to, bytes, [=] { memcpy(to, (void *)from, bytes); });
}

Result cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *stream) {
    ENTER_CONTEXT;
    {
        std::lock_guard<std::mutex> lock(global);
        if (bytes && !(contains(allocations, to, bytes) && contains(allocations, from, bytes)))
            die("a copy on the card outside of its memory");
    }
    stream_of(stream)->push({[=] { memcpy((void *)to, (void *)from, bytes); }});
    return OK;
}

Result cuModuleLoadData(void **module, const void *) {
    ENTER_CONTEXT;
    *module = (void *)1;
    return OK;
}
Result cuModuleUnload(void *) {
    ENTER_CONTEXT;
    return OK;
}
Result cuModuleGetFunction(void **function, void *, const char *name) {
    ENTER_CONTEXT;
    if (strncmp(name, "recoded_", 8) != 0) return NOT_FOUND;
    name += 8;
    // Those of single codes, compiled at run time, are all launched alike.
    const bool is_compiled = strncmp(name, "reed_solomon_", 13) == 0;
    const char *wanted = is_compiled ? "reed_solomon" : name;
    GeometryRow row;
    for (size_t index = 0; recoded_shim_geometry(index, &row); index++) {
        if (strcmp(row.name, wanted) != 0) continue;
        // For as long as the process: there are few.
        *function = new Function{name, row, SHARED_UNASKED};
        return OK;
    }
    return NOT_FOUND;
}
Result cuFuncSetAttribute(void *function, int attribute, int value) {
    ENTER_CONTEXT;
    // CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    if (attribute != 8 || value < 0 || (uint32_t)value > shared_max()) return INVALID_VALUE;
    ((Function *)function)->shared_allowed = std::max((uint32_t)value, SHARED_UNASKED);
    return OK;
}
Result cuLaunchKernel(void *function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned,
                      unsigned, unsigned shared, void *stream, void **parameters, void **) {
    ENTER_CONTEXT;
    Launch launch{(const Function *)function, {}};
    if (shared > launch.function->shared_allowed || threads > THREADS_MAX || blocks == 0 ||
        blocks > INT32_MAX)
        return INVALID_VALUE;
    const bool has_bmma = capability() >= 80 && capability() < 100;
    if (launch.function->name == "matmul_bmma" && !has_bmma)
        die("a launch of matmul_bmma, which does nothing on such a card");
    if (launch.function->name == "matmul_wgmma" && capability() != 90)
        die("a launch of matmul_wgmma, which does nothing on such a card");
    // threads and shared memory as job.h has them
    if (threads != launch.function->geometry.numbers[0] || shared != launch.function->geometry.numbers[4])
        die("a launch of another shape than that of the kernel " + launch.function->name);
    shim::Launch &to = launch.shim;
    to.grid = blocks;
    to.threads = threads;
    to.shared_bytes = shared;
    to.jobs = *(const Job **)parameters[0];
    to.jobs_count = *(uint32_t *)parameters[1];
    to.tables = *(FieldTables **)parameters[2];
    to.arena = *(uint8_t **)parameters[3];
    static std::atomic<uint64_t> seed{0};
    to.seed = ++seed;
    {
        std::lock_guard<std::mutex> lock(global);
        auto after = allocations.upper_bound((uintptr_t)to.arena);
        if (after == allocations.begin()) die("a launch on no device memory");
        --after;
        to.arena_bytes = after->first + after->second - (uintptr_t)to.arena;
    }
    auto of = context();
    stream_of(stream)->push({[of, launch] { run_kernel(of, launch); }});
    return OK;
}

Result cuGetErrorName(int code, const char **name) {
    *name = code == 2     ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code == 100 ? "CUDA_ERROR_NO_DEVICE"
            : code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS"
            : code == 719 ? "CUDA_ERROR_LAUNCH_FAILED"
                          : "CUDA_ERROR_OF_THE_STAND_IN";
    return OK;
}
Result cuGetErrorString(int code, const char **text) { return cuGetErrorName(code, text); }
}
