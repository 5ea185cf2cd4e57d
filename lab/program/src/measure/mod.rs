//! Costs of a run: CPU time, memory, and the processes that are measured.
//!
//! Measures as in "Measuring honestly" of the scenarios: CPU by the process's own clock, memory by the kernel's accounts, every
//! server pinned to one core and ended after its run.

mod calls;
mod cpu;
mod interrupt;
mod memory;
mod namespace;
mod pin;
mod server;
mod steal;

pub use calls::{CallCounter, Calls};
pub use cpu::CpuClock;
pub use interrupt::{ChildGuard, end_children_on_signal, is_over};
pub use memory::{ProcessMemory, kernel_bytes, memfd_bytes, resident_bytes, socket_bytes};
pub use namespace::{
    bound_receive_buffers, congestion_control, enter_namespace, is_fit_for_namespaces, is_in_namespace,
    left_out,
};
pub use pin::{Pinned, cores, pin_current, take_priority};
pub use server::{Server, ServerCommand};
pub use steal::MachineTime;
