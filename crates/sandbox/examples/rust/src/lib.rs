//! A module in Rust: swaps the Ethernet addresses of each frame.
//!
//! `cargo build --release --target wasm32-unknown-unknown` makes `macswap_module.wasm`. The interface is that of
//! `netbricks.h`, where each field and function is described.
#![no_std]

use core::cell::UnsafeCell;

/// Packets of a batch at most: `NB_BATCH`.
const BATCH: usize = 256;
/// `NB_DROP_MALFORMED`.
const MALFORMED: u32 = 0x201;

#[derive(Clone, Copy)]
#[repr(C)]
struct Packet {
    data: *mut u8,
    len: u32,
    verdict: u32,
}

/// `nb_batch`.
#[repr(C)]
pub struct Batch {
    now: u64,
    count: u32,
    flags: u32,
    packets: [Packet; BATCH],
}

struct Shared(UnsafeCell<Batch>);

// SAFETY: a module has one thread.
unsafe impl Sync for Shared {}

static SHARED: Shared = Shared(UnsafeCell::new(Batch {
    now: 0,
    count: 0,
    flags: 0,
    packets: [Packet { data: core::ptr::null_mut(), len: 0, verdict: 0 }; BATCH],
}));

/// The version of the interface.
// SAFETY: no other function has this name.
#[unsafe(no_mangle)]
pub extern "C" fn nb_abi() -> u32 {
    1
}

/// Bytes of each frame that the module reads.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn nb_reads() -> u32 {
    64
}

/// It writes headers.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn nb_writes() -> u32 {
    1
}

/// Tells the host where the batch lies.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn nb_setup(_config: *const u8, _len: u32) -> *mut Batch {
    SHARED.0.get()
}

/// Swaps the addresses of each frame.
// SAFETY: as above.
#[unsafe(no_mangle)]
pub extern "C" fn nb_process(batch: *mut Batch) {
    // SAFETY: the host passes the address that `nb_setup` returned, and nothing else uses the batch meanwhile.
    let batch = unsafe { &mut *batch };
    for packet in batch.packets.iter_mut().take(batch.count as usize) {
        if packet.len < 14 {
            packet.verdict = MALFORMED;
            continue;
        }
        // SAFETY: the module sees the first 64 bytes of each frame; where the frame has fewer, zeros follow.
        let addresses = unsafe { &mut *packet.data.cast::<[u8; 12]>() };
        let (destination, source) = addresses.split_at_mut(6);
        destination.swap_with_slice(source);
    }
}

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    core::arch::wasm32::unreachable()
}
