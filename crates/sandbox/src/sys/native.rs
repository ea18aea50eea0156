//! A module's source as native code of this process, without any protection.
//!
//! Only benchmarks use it, by the feature `native`: a library is trusted as this program is.

use std::ffi::{CStr, CString, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::ptr::NonNull;

use netbricks_core::buffer::{Batch, Region};

use crate::abi::{BATCH, FLAG_MAPPED, PASS};
use crate::host::MOST_CONFIG;

/// `nb_packet`, with the pointers of this machine.
#[repr(C)]
struct Packet {
    data: *mut u8,
    len: u32,
    verdict: u32,
}

/// `nb_batch`.
#[repr(C)]
struct Table {
    now: u64,
    count: u32,
    flags: u32,
    packets: [Packet; BATCH],
}

type Setup = unsafe extern "C" fn(*const u8, u32) -> *mut Table;
type Process = unsafe extern "C" fn(*mut Table);
type Bounds = unsafe extern "C" fn(usize, usize);

/// A loaded library with its batch.
pub(crate) struct Library {
    handle: NonNull<c_void>,
    process: Process,
    table: NonNull<Table>,
}

/// The last message of the dynamic linker.
fn problem() -> String {
    // SAFETY: it has no conditions.
    let text = unsafe { libc::dlerror() };
    if text.is_null() {
        return "unknown".into();
    }
    // SAFETY: the linker's message ends in a zero and stays until this thread asks again.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn symbol(handle: NonNull<c_void>, name: &CStr) -> Option<NonNull<c_void>> {
    // SAFETY: the handle is open.
    NonNull::new(unsafe { libc::dlsym(handle.as_ptr(), name.as_ptr()) })
}

impl Library {
    /// Loads a library and sets it up, for packets of this region.
    ///
    /// # Errors
    /// The problem: it cannot be loaded, lacks a function or refuses its configuration.
    pub(crate) fn load(path: &Path, config: &str, region: Region) -> Result<Self, String> {
        let name = CString::new(path.as_os_str().as_bytes()).map_err(|error| error.to_string())?;
        // SAFETY: the library is trusted as this program is.
        let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let handle = NonNull::new(handle).ok_or_else(problem)?;
        let missing = |name: &str| format!("{} has no `{name}`", path.display());
        let setup = symbol(handle, c"nb_setup").ok_or_else(|| missing("nb_setup"))?;
        let process = symbol(handle, c"nb_process").ok_or_else(|| missing("nb_process"))?;
        // SAFETY: netbricks.h declares the function so.
        let setup = unsafe { std::mem::transmute::<NonNull<c_void>, Setup>(setup) };
        // SAFETY: as above.
        let process = unsafe { std::mem::transmute::<NonNull<c_void>, Process>(process) };
        if let Some(bounds) = symbol(handle, c"nb_bounds") {
            // SAFETY: check.c declares the function so.
            let bounds = unsafe { std::mem::transmute::<NonNull<c_void>, Bounds>(bounds) };
            // SAFETY: it keeps the numbers.
            unsafe { bounds(region.base.as_ptr() as usize, region.len) };
        }
        let room = symbol(handle, c"nb_config").ok_or_else(|| missing("nb_config"))?.cast::<u8>();
        if config.len() > MOST_CONFIG {
            return Err(format!("a configuration of {} bytes, of which {MOST_CONFIG} fit", config.len()));
        }
        // SAFETY: host.c declares an array of so many bytes, and nothing else has its address yet.
        unsafe { room.copy_from_nonoverlapping(NonNull::from(config.as_bytes()).cast(), config.len()) };
        // SAFETY: the bytes lie in the library.
        let table = unsafe { setup(room.as_ptr(), config.len() as u32) };
        let table =
            NonNull::new(table).ok_or("`nb_setup` returned a null pointer: it refuses its configuration")?;
        Ok(Self { handle, process, table })
    }

    /// Runs it over a batch.
    #[inline]
    pub(crate) fn run(&mut self, batch: &mut Batch, now: u64) {
        // SAFETY: the library made it, with this layout, and touches it only while `process` runs.
        let table = unsafe { self.table.as_mut() };
        (table.now, table.count, table.flags) = (now, batch.len() as u32, FLAG_MAPPED);
        batch.warm();
        batch.each_beside(&mut table.packets, |_, frame, packet| {
            let data = frame.data_mut();
            *packet = Packet { data: data.as_mut_ptr(), len: data.len() as u32, verdict: PASS };
        });
        // SAFETY: the table names frames of this batch alone, to which nothing has a reference.
        unsafe { (self.process)(self.table.as_ptr()) };
    }

    /// The verdict of a packet, as the library left it.
    #[inline(always)]
    pub(crate) fn verdict(&self, slot: usize) -> u32 {
        // SAFETY: as in `run`.
        let table = unsafe { self.table.as_ref() };
        table.packets.get(slot).map_or(u32::MAX, |packet| packet.verdict)
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: it is open, and nothing calls it any more.
        unsafe { libc::dlclose(self.handle.as_ptr()) };
    }
}
