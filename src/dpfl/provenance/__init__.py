"""The audit trail: what each stage read, wrote and was made with."""
