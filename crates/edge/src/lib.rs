//! The data plane: one core is one driver, protocol stacks and one hub shard.
