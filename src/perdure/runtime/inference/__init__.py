"""One model step: what the model is shown, which backend answers, and failover."""
