"""The cells: real sizes on one GPU, in every precision, with what saves memory, and sharded over one rank."""

import memory_seeds

# What a user tried with t5-base, at the length that explains his 27 GB, and the GB that he reported; {}: the GPU.
USERS = {f"t5_base-{strategy}-{{}}-s2816": (title, reported_gb) for title, strategy, reported_gb in memory_seeds.ROWS}
# In this order, since a part whose time ends leaves out the last ones.
CELLS = (
    "gpt2_small-single+bf16-{}",
    *USERS,
    "t5_large-single+bf16-{}",
    "t5_large-single+bf16+ckpt-{}",
    "t5_large-single+bf16+adafactor-{}",
    "bloom_560m-single+bf16-{}",
    "llama_1b-single+bf16+ckpt-{}",
    "gpt2_medium-single+bf16-{}",
    "gpt2_medium-fsdp2+bf16-{}",
    "gpt2_medium-zero2+bf16-{}",
    "bloom_560m-single+bf16-{}-b4",
    "gpt2_medium-single-{}",
    "llama_1b-single+pure_bf16-{}",
    "gpt2_medium-zero3+bf16+offload-{}",
)
