// A CUDA runtime that launches nothing: it records what host code would launch.
//
// Linked in the place of libcudart and libcuda (`-cudart none`), so that a project's own host code
// says grid, cluster, shared bytes, arguments and tensor maps, on a machine without a GPU. Memory
// of the device is memory of the host at addresses that no other number looks like; a tensor map
// holds what cuTensorMapEncodeTiled was told. A function that is not here ends it.
//
// `build.py` has what a driver sees of it; the driver defines `void drive()`.

#include <cuda.h>
#include <cuda_runtime.h>
#include <sys/mman.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <string>
#include <vector>

void drive();

namespace recorder {

constexpr uintptr_t kFirst = 0x600000000000, kApart = 0x100000000;
constexpr uint64_t kMap = 0x70616d726f736e74;  // "tnsormap", little-endian

struct Memory {
    std::string name;
    char* at;
    size_t bytes;
};

int sms = 2;                                       // of the device that host code asks about
std::vector<Memory> memory;
std::map<std::string, std::vector<size_t>> sizes;  // of the parameters of a kernel
std::string folder;
int launches = 0;
struct { dim3 grid, block; size_t shared; cudaStream_t stream; } configured;

// A host function's device name; constructors of other files enter them before ours are run.
std::map<const void*, std::string>& kernels() {
    static std::map<const void*, std::string> found;
    return found;
}

void* allocate(const std::string& name, size_t bytes) {
    void* want = reinterpret_cast<void*>(kFirst + memory.size() * kApart);
    void* at = mmap(want, bytes + 1, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE, -1, 0);
    if (at != want) { perror("mmap"); exit(4); }
    memory.push_back({name, static_cast<char*>(at), bytes});
    return at;
}

void put(std::ostream& out, const void* what, size_t bytes) {
    char two[3];
    for (size_t i = 0; i < bytes; ++i) {
        snprintf(two, sizeof two, "%02x", static_cast<const unsigned char*>(what)[i]);
        out << two;
    }
}

void record(const void* function, dim3 grid, dim3 block, void** arguments, size_t shared,
                   dim3 cluster, bool dependent) {
    const std::string name = kernels().count(function) ? kernels()[function] : "";
    if (!sizes.count(name)) { fprintf(stderr, "no kernel of the PTX: %s\n", name.c_str()); exit(5); }
    std::ofstream out(folder + "/" + std::to_string(launches++) + ".launch");
    out << "kernel " << name << "\n";
    out << "grid " << grid.x << " " << grid.y << " " << grid.z << "\n";
    out << "block " << block.x << " " << block.y << " " << block.z << "\n";
    out << "cluster " << cluster.x << " " << cluster.y << " " << cluster.z << "\n";
    out << "shared " << shared << "\ndependent " << dependent << "\n";
    for (size_t i = 0; i < sizes[name].size(); ++i) {
        out << "argument ";
        put(out, arguments[i], sizes[name][i]);
        out << "\n";
    }
    for (const Memory& one : memory) {
        out << "memory " << one.name << " " << reinterpret_cast<uintptr_t>(one.at) << " ";
        put(out, one.at, one.bytes);
        out << "\n";
    }
}

}  // namespace recorder

extern "C" {

void* recorder_named(const char* name, size_t bytes) { return recorder::allocate(name, bytes); }
void recorder_absent() {
    fprintf(stderr, "host code calls a function of CUDA that the recorder does not have\n");
    exit(6);
}
void recorder_sms(int many) { recorder::sms = many; }

// What the compiler's own host code calls.
void** __cudaRegisterFatBinary(void*) { static void* one; return &one; }
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterManagedVar(void**, void**, char*, const char*, int, size_t, int, int) {}
void __cudaRegisterFunction(void**, const char* host, char*, const char* device, int, uint3*,
                            uint3*, dim3*, dim3*, int*) {
    recorder::kernels()[host] = device;
}
unsigned __cudaPushCallConfiguration(dim3 grid, dim3 block, size_t shared, cudaStream_t stream) {
    recorder::configured = {grid, block, shared, stream};
    return 0;
}
cudaError_t __cudaPopCallConfiguration(dim3* grid, dim3* block, size_t* shared, void* stream) {
    *grid = recorder::configured.grid, *block = recorder::configured.block;
    *shared = recorder::configured.shared;
    *static_cast<cudaStream_t*>(stream) = recorder::configured.stream;
    return cudaSuccess;
}
cudaError_t __cudaGetKernel(cudaKernel_t* kernel, const void* function) {
    *kernel = reinterpret_cast<cudaKernel_t>(const_cast<void*>(function));
    return cudaSuccess;
}
cudaError_t __cudaLaunchKernel(cudaKernel_t kernel, dim3 grid, dim3 block, void** arguments,
                               size_t shared, cudaStream_t) {
    recorder::record(kernel, grid, block, arguments, shared, dim3(1, 1, 1), false);
    return cudaSuccess;
}
cudaError_t cudaLaunchKernel(const void* function, dim3 grid, dim3 block, void** arguments,
                             size_t shared, cudaStream_t) {
    recorder::record(function, grid, block, arguments, shared, dim3(1, 1, 1), false);
    return cudaSuccess;
}
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* how, const void* function,
                                void** arguments) {
    dim3 cluster(1, 1, 1);
    bool dependent = false;
    for (unsigned i = 0; i < how->numAttrs; ++i) {
        const cudaLaunchAttribute& one = how->attrs[i];
        if (one.id == cudaLaunchAttributeClusterDimension)
            cluster = dim3(one.val.clusterDim.x, one.val.clusterDim.y, one.val.clusterDim.z);
        if (one.id == cudaLaunchAttributeProgrammaticStreamSerialization)
            dependent = one.val.programmaticStreamSerializationAllowed;
    }
    recorder::record(function, how->gridDim, how->blockDim, arguments, how->dynamicSmemBytes,
                     cluster, dependent);
    return cudaSuccess;
}

// Memory and its copies: at once, in the order of the calls.
cudaError_t cudaMalloc(void** at, size_t bytes) {
    *at = recorder::allocate("memory" + std::to_string(recorder::memory.size()), bytes);
    return cudaSuccess;
}
cudaError_t cudaFree(void*) { return cudaSuccess; }
cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind,
                            cudaStream_t) {
    memcpy(to, from, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemset(void* to, int byte, size_t bytes) {
    memset(to, byte, bytes);
    return cudaSuccess;
}
cudaError_t cudaMemsetAsync(void* to, int byte, size_t bytes, cudaStream_t) {
    memset(to, byte, bytes);
    return cudaSuccess;
}
cudaError_t cudaStreamSynchronize(cudaStream_t) { return cudaSuccess; }
cudaError_t cudaDeviceSynchronize() { return cudaSuccess; }

// The device: an H100 with few SMs.
cudaError_t cudaGetDevice(int* device) { *device = 0; return cudaSuccess; }
cudaError_t cudaSetDevice(int) { return cudaSuccess; }
cudaError_t cudaDriverGetVersion(int* version) { *version = CUDA_VERSION; return cudaSuccess; }
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaFuncGetAttributes(cudaFuncAttributes* found, const void*) {
    memset(found, 0, sizeof *found);
    found->maxThreadsPerBlock = 1024;
    return cudaSuccess;
}
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaPeekAtLastError() { return cudaSuccess; }
const char* cudaGetErrorString(cudaError_t) { return "recorded"; }
const char* cudaGetErrorName(cudaError_t) { return "recorded"; }
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr which, int) {
    switch (which) {
        case cudaDevAttrMultiProcessorCount: *value = recorder::sms; break;
        case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
        case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
        case cudaDevAttrWarpSize: *value = 32; break;
        case cudaDevAttrComputeCapabilityMajor: *value = 9; break;
        case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = 232448; break;
        default: *value = 0;
    }
    return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* found, int) {
    memset(found, 0, sizeof *found);
    found->major = 9, found->multiProcessorCount = recorder::sms;
    found->sharedMemPerBlockOptin = 232448;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* many, const void*, int,
                                                                   size_t, unsigned) {
    *many = 1;
    return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* many, const void*, const cudaLaunchConfig_t*) {
    *many = recorder::sms;
    return cudaSuccess;
}

// 128 bytes that hold what was asked for; host code may clear bits of the second word.
CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank,
                                void* address, const cuuint64_t* dims, const cuuint64_t* strides,
                                const cuuint32_t* box, const cuuint32_t* steps,
                                CUtensorMapInterleave interleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill fill) {
    memset(map, 0, sizeof *map);
    uint64_t* words = reinterpret_cast<uint64_t*>(map);
    words[0] = recorder::kMap;
    words[2] = reinterpret_cast<uint64_t>(address);
    words[3] = uint64_t(type) | uint64_t(rank) << 8 | uint64_t(swizzle) << 16 | uint64_t(fill) << 24;
    if (interleave != CU_TENSOR_MAP_INTERLEAVE_NONE) return CUDA_ERROR_NOT_SUPPORTED;
    for (cuuint32_t i = 0; i < rank; ++i) {
        if (steps[i] != 1 || dims[i] >> 32) return CUDA_ERROR_NOT_SUPPORTED;
        words[4 + i] = dims[i] | uint64_t(box[i]) << 32;
        if (i) words[8 + i] = strides[i - 1];
    }
    return CUDA_SUCCESS;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned,
                                             unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
    const bool known = !strcmp(name, "cuTensorMapEncodeTiled");
    *function = known ? reinterpret_cast<void*>(&cuTensorMapEncodeTiled) : nullptr;
    if (found) *found = known ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
    return known ? cudaSuccess : cudaErrorNotSupported;
}
CUresult cuGetErrorString(CUresult, const char** text) { *text = "recorded"; return CUDA_SUCCESS; }
CUresult cuGetErrorName(CUresult, const char** text) { *text = "recorded"; return CUDA_SUCCESS; }

}  // extern "C"

/// `recorder SIZES FOLDER`: a line of SIZES is a kernel and the bytes of each of its parameters.
int main(int count, char** given) {
    if (count != 3) return 2;
    std::ifstream lines(given[1]);
    std::string name;
    for (size_t many; lines >> name >> many;) {
        std::vector<size_t>& each = recorder::sizes[name];
        each.resize(many);
        for (size_t& one : each) lines >> one;
    }
    recorder::folder = given[2];
    drive();
    return 0;
}
