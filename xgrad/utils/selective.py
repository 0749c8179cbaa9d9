"""x"""
CheckpointPolicy=SelectiveCheckpointContext=create_selective_checkpoint_contexts=traced_contexts=None
