"""Entity linking, with scores that can be compared: every one is of a stated protocol.

scores     Acc@1, Acc@5, MRR, groups of mentions, reasons of errors
evaluate   a linker beside both baselines
finetune   a paper's fine-tuning on a linking task, then scored
cases      what a scored linker gets wrong
"""
