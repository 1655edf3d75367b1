from __future__ import annotations
import contextlib
from unittest import mock
import torch

@contextlib.contextmanager
def applied(rec, session):
    import transformers.utils.import_utils as iu
    with mock.patch.object(iu, "is_fake_tensor", lambda x: False):
        rec.overrides[torch.ops.aten._local_scalar_dense.default] = item
        rec.overrides[torch.ops.aten.add.Tensor] = accumulate
        yield

def item(rec, func, args, kwargs):
    t=args[0]
    if t.dtype==torch.bool: return False
    if t.dtype.is_floating_point: return 1.0
    return 0

def accumulate(rec, func, args, kwargs):
    if torch._C._current_graph_task_id()!=-1 and torch._C._current_autograd_node() is None and not torch.is_grad_enabled():
        a=args[0]
        if torch._C._storage_Use_Count(a.untyped_storage()._cdata)<=2 and a.is_contiguous():
            return a.add_(args[1])
    return func(*args,**kwargs)
