"""A Llama whose tensors are large enough for DeepSpeed to swap them to a disk: 1 MiB and more."""

from perfsuite.catalog.definitions import Model, Workload

MODELS = (
    Model(
        name="llama_mini",
        family="llama",
        task="causal_lm",
        source="perfsuite",
        workload=Workload(micro_batch=2, sequence_length=32),
        parameters=6_556_160,
        config_class="LlamaConfig",
        model_class="LlamaForCausalLM",
        vocabulary=2048,
        config={
            "vocab_size": 2048,
            "hidden_size": 512,
            "intermediate_size": 1024,
            "num_hidden_layers": 2,
            "num_attention_heads": 8,
            "num_key_value_heads": 2,
            "bos_token_id": 2046,
            "eos_token_id": 2047,
            "tie_word_embeddings": False,
            "use_cache": False,
        },
    ),
)
