// Small tensors are really computed, so that a program's control flow is right: after CUDA's own kernel, with its
// allocations and launches, torch's kernel for the CPU runs over the same memory. That holds for every operator of ATen
// with a kernel for both, except those below. docs/emulation.md says so, and tests/features/emulation/test_emulated_torch.py tests it.
#include <ATen/EmptyTensor.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/record_function.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <cstdlib>
#include <optional>
#include <string_view>

#include "../core/counts.h"
#include "../core/device.h"
#include "../core/memory.h"

namespace {
using c10::DispatchKey;
using c10::IValue;
using Stack = torch::jit::Stack;
using OptionalTensors = c10::List<std::optional<at::Tensor>>;

int64_t most_elements = 0;
thread_local bool computing = false;

// Parts of names: what allocates, reads one value, or makes a view; what draws random numbers, since the CPU's numbers
// must stay those of a real run; and what updates all parameters at once.
constexpr std::string_view left_out[] = {
    "empty",       "_copy_from", "record_stream", "_local_scalar_dense", "set_",      "resize_",   "view",
    "as_strided",  "pin_memory", "is_pinned",     "_fused_sdp_choice",   "_fused_ad", "_fused_sgd", "_amp_",
    "rrelu",       "dropout",    "bernoulli",     "normal",              "uniform",   "random",    "multinomial",
    "exponential", "geometric",  "cauchy",        "poisson",             "binomial",  "_foreach",  "gamma",
};

bool is_left_out(std::string_view name) {
  for (std::string_view part : left_out)
    if (name.find(part) != name.npos) return true;
  return false;
}

at::Tensor on_host(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_cuda()) return tensor;
  auto options = at::TensorOptions().dtype(tensor.dtype()).device(c10::kCPU);
  return at::from_blob(tensor.data_ptr(), tensor.sizes(), tensor.strides(), options);
}

IValue on_host(const IValue& value) {
  if (value.isTensor()) return on_host(value.toTensor());
  if (value.isTensorList()) {
    c10::List<at::Tensor> all;
    for (const at::Tensor& tensor : value.toTensorVector()) all.push_back(on_host(tensor));
    return all;
  }
  if (value.isOptionalTensorList()) {
    OptionalTensors all;
    for (const auto& tensor : value.toOptionalTensorVector()) all.push_back(tensor ? std::optional(on_host(*tensor)) : tensor);
    return all;
  }
  return value;
}

bool is_small(const at::Tensor& tensor, bool& any_on_device) {
  if (!tensor.defined()) return true;
  any_on_device |= tensor.is_cuda();
  return tensor.layout() == c10::kStrided && tensor.numel() <= most_elements && !tensor.is_conj() && !tensor.is_neg();
}

// Whether all tensors of an argument are small. A device or a generator names the GPU, so the CPU's kernel cannot run.
bool is_small(const IValue& value, bool& any_on_device) {
  bool small = !value.isGenerator() && !value.isDevice();
  if (value.isTensor()) small = is_small(value.toTensor(), any_on_device);
  if (value.isTensorList())
    for (const at::Tensor& tensor : value.toTensorVector()) small = small && is_small(tensor, any_on_device);
  if (value.isOptionalTensorList())
    for (const auto& tensor : value.toOptionalTensorVector()) small = small && (!tensor || is_small(*tensor, any_on_device));
  return small;
}

void keep(const at::Tensor& to, const at::Tensor& from) {
  if (!to.defined() || !to.is_cuda() || !to.numel()) return;
  if (from.defined() && from.is_cpu() && to.sizes() == from.sizes() && to.data_ptr() != from.data_ptr())
    on_host(to).copy_(from);
  size_t bytes = at::detail::computeStorageNbytes(to.sizes(), to.strides(), to.element_size());
  emulated::note_written(to.data_ptr(), bytes);
}

// Write a result of the CPU's kernel into that of CUDA's. A result that is no tensor is the CPU's, and one whose size
// depends on the contents (nonzero) gets the CPU's size.
void keep(IValue& to, const IValue& from) {
  if (to.isTensor() && from.isTensor()) {
    const at::Tensor& theirs = from.toTensor();
    if (to.toTensor().defined() && theirs.defined() && to.toTensor().sizes() != theirs.sizes())
      to = at::empty(theirs.sizes(), to.toTensor().options());
    keep(to.toTensor(), theirs);
  } else if (to.isTensorList() && from.isTensorList()) {
    auto ours = to.toTensorVector(), theirs = from.toTensorVector();
    for (size_t one = 0; one < std::min(ours.size(), theirs.size()); one++) keep(ours[one], theirs[one]);
  } else if (!to.isTensor() && !to.isTensorList()) {
    to = from;
  }
}

struct Computed : c10::OperatorKernel {
  c10::SafeKernelFunction cuda;
  explicit Computed(c10::SafeKernelFunction kernel) : cuda(std::move(kernel)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, Stack* stack) {
    size_t count = op.schema().arguments().size();
    bool any_on_device = false, small = !computing;
    for (auto at = stack->end() - count; small && at != stack->end(); ++at) small = is_small(*at, any_on_device);
    if (!small || !any_on_device) {
      cuda.callBoxed(op, keys, stack);
      return;
    }
    Stack mine(stack->end() - count, stack->end());
    computing = true;  // not once more for the operators inside
    try {
      cuda.callBoxed(op, keys, stack);
    } catch (...) {
      computing = false;
      throw;
    }
    compute(op, mine, *stack);
    computing = false;
  }

  static void compute(const c10::OperatorHandle& op, Stack& mine, Stack& stack) try {
    for (IValue& value : mine) value = on_host(value);  // only now: CUDA's kernel may have resized `out`
    c10::impl::ExcludeDispatchKeyGuard without(
        c10::autograd_dispatch_keyset |
        c10::DispatchKeySet({DispatchKey::ADInplaceOrView, DispatchKey::Python, DispatchKey::PythonTLSSnapshot,
                             DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA}));
    at::DisableRecordFunctionGuard unseen;  // by torch's profiler: a real device runs no such operator
    op.callBoxed(&mine);
    size_t results = op.schema().returns().size();
    for (size_t one = 0; one < results; one++) keep(stack[stack.size() - results + one], mine[one]);
    emulated::count_computed(op.schema().name().c_str(), true);
  } catch (const std::exception&) {  // such as a dtype that the CPU's kernel lacks
    emulated::count_computed(op.schema().name().c_str(), false);
  }
};
}  // namespace

extern "C" void emulated_compute_small_tensors() {
  most_elements = atol(emulated::setting("compute"));
  if (!most_elements) return;
  static auto* kept = new std::vector<c10::RegistrationHandleRAII>;  // never destroyed: that would unregister them
  auto& dispatcher = c10::Dispatcher::singleton();
  auto all = dispatcher.getAllOpNamesForDispatchKey(DispatchKey::CUDA);
  const c10::OperatorName copy("aten::copy_", "");  // of one kernel for all devices, which converts dtypes on each
  all.push_back(copy);
  for (const auto& name : all) {
    std::string_view own = name.name;
    if (own.substr(0, 6) != "aten::" || is_left_out(own.substr(6))) continue;
    auto op = dispatcher.findOp(name);
    bool on_both = op && op->hasSchema() && op->hasKernelForDispatchKey(DispatchKey::CUDA) &&
                   op->hasKernelForDispatchKey(DispatchKey::CPU);
    if (!on_both && !(name == copy)) continue;
    auto computed = std::make_unique<Computed>(op->getComputedKernelForDispatchKey(DispatchKey::CUDA));
    auto kernel = c10::KernelFunction::makeFromBoxedFunctor(std::move(computed));
    kept->push_back(dispatcher.registerImpl(name, DispatchKey::CUDA, std::move(kernel), std::nullopt, nullptr, "emulated"));
  }
}
