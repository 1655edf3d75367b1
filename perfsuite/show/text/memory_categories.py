"""The categories of a step's memory, in the order in which every bar, curve and table has them."""

CATEGORIES = {  # the letter in the bar, and the meaning
    "parameters": ("P", "the weights that forward uses"),
    "master_parameters": ("M", "fp32 copies that the optimizer updates"),
    "optimizer_state": ("O", "the optimizer's state per weight"),
    "gradients": ("G", "one gradient per weight"),
    "communication": ("C", "buffers of collectives"),
    "batch": ("B", "token ids, masks, labels"),
    "activations": ("A", "tensors that forward keeps for backward"),
    "temporaries": ("T", "tensors that live within one phase"),
    "made_before_steps": ("S", "what a script has made before its steps, such as data"),
    "tiles": ("L", "what the device's layout adds to parameters, state and batch"),
    "program": ("X", "its code on the device"),
}
