//! The privileges of a process: its capabilities (capabilities(7)), and the memory that it may lock.

use std::io;

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::interface::refused;
use crate::port::PortError;

/// A capability that ports need.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Capability {
    NetAdmin = 12,
    NetRaw = 13,
    IpcLock = 14,
    SysAdmin = 21,
    Bpf = 39,
}

impl Capability {
    fn name(self) -> &'static str {
        match self {
            Self::NetAdmin => "CAP_NET_ADMIN",
            Self::NetRaw => "CAP_NET_RAW",
            Self::IpcLock => "CAP_IPC_LOCK",
            Self::SysAdmin => "CAP_SYS_ADMIN",
            Self::Bpf => "CAP_BPF",
        }
    }
}

/// All privileges that a driver needs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Needs {
    pub(crate) capabilities: &'static [Capability],
    /// Bytes of memory that the kernel locks. More than the process's limit needs `CAP_IPC_LOCK`.
    pub(crate) locked: u64,
}

impl Needs {
    /// The error for an action that the kernel refused.
    ///
    /// It lists all privileges that the process lacks, also those that the driver needs later.
    pub(crate) fn refused(&self, port: &str, action: &str, source: io::Error) -> PortError {
        let is_privilege = matches!(source.raw_os_error(), Some(libc::EPERM | libc::EACCES | libc::ENOBUFS));
        let missing = if is_privilege { self.missing(effective(), lockable()) } else { Vec::new() };
        if missing.is_empty() {
            return refused(port, action, "that the kernel asks for", source);
        }
        let mut all: Vec<_> =
            self.capabilities.iter().map(|capability| capability.name().to_lowercase()).collect();
        if self.locked > 0 {
            all.push(Capability::IpcLock.name().to_lowercase());
        }
        PortError::Privileges { port: port.into(), action: action.into(), missing, all: all.join(",") }
    }

    /// The missing privileges, with these effective capabilities and this many bytes that may be locked.
    fn missing(&self, effective: u64, lockable: Option<u64>) -> Vec<String> {
        let has = |capability: Capability| effective & 1 << capability as u32 != 0;
        let mut missing: Vec<String> = self
            .capabilities
            .iter()
            // CAP_BPF was a part of CAP_SYS_ADMIN, which still includes it.
            .filter(|needed| !has(**needed) && (**needed != Capability::Bpf || !has(Capability::SysAdmin)))
            .map(|needed| needed.name().to_owned())
            .collect();
        if let Some(lockable) = lockable
            && lockable < self.locked
            && !has(Capability::IpcLock)
        {
            missing.push(format!(
                "CAP_IPC_LOCK (or a higher limit of locked memory, `ulimit -l {}`: {} bytes are to be locked, {lockable} may be)",
                self.locked.div_ceil(1_024),
                self.locked
            ));
        }
        missing
    }

    /// Raises the process's limit of locked memory as far as allowed, if it is too low.
    pub(crate) fn raise_limit(&self) {
        let Rlimit { current, maximum } = getrlimit(Resource::Memlock);
        if current.is_some_and(|current| current < self.locked) {
            // If that fails, the kernel reports it when it has to lock the memory.
            let _ = setrlimit(Resource::Memlock, Rlimit { current: maximum, maximum });
        }
    }
}

/// The number of bytes that the process may lock; `None` without a limit.
fn lockable() -> Option<u64> {
    getrlimit(Resource::Memlock).current
}

/// The effective capabilities of this thread, a bit each; all if the kernel does not say.
fn effective() -> u64 {
    let status = std::fs::read_to_string("/proc/thread-self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    line.and_then(|digits| u64::from_str_radix(digits.trim(), 16).ok()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NEEDS: Needs =
        Needs { capabilities: &[Capability::NetRaw, Capability::NetAdmin, Capability::Bpf], locked: 1 << 25 };

    #[test]
    fn all_that_is_missing_is_named_at_once() {
        let missing = |effective, lockable| NEEDS.missing(effective, lockable);
        let none = missing(0, Some(8 << 20));
        assert_eq!(none[..3], ["CAP_NET_RAW", "CAP_NET_ADMIN", "CAP_BPF"]);
        assert!(none[3].starts_with("CAP_IPC_LOCK") && none[3].contains("ulimit -l 32768"), "{none:?}");
        assert_eq!(missing(1 << 13 | 1 << 21, Some(1 << 25)), ["CAP_NET_ADMIN"]);
        assert_eq!(missing(1 << 12 | 1 << 13 | 1 << 14 | 1 << 39, Some(0)), [""; 0]);
        assert_eq!(missing(1 << 12 | 1 << 13 | 1 << 39, None), [""; 0]);
    }

    #[test]
    fn an_error_says_how_to_grant_all_that_the_driver_needs() {
        let needs = Needs { locked: 0, ..NEEDS };
        let error = needs.refused("lan", "loading a program", io::Error::from_raw_os_error(libc::EPERM));
        let text = error.to_string();
        // A process that has all of them is refused for another reason.
        if effective() & 1 << 39 == 0 {
            assert!(text.contains("setcap cap_net_raw,cap_net_admin,cap_bpf+ep"), "{text}");
        }
        let other = needs.refused("lan", "loading a program", io::Error::from_raw_os_error(libc::ENODEV));
        assert!(matches!(other, PortError::System { .. }), "{other}");
    }
}
