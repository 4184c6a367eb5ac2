"""Libraries: one contract that every source speaks to, and the engines that keep it. No SQL leaves this folder."""
