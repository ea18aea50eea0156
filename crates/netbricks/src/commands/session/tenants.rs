//! The tenants of what runs: their settings, what another file changes of them, and their credentials.

use std::path::{Path, PathBuf};

use netbricks_control::{Grant, api};

use super::super::control::token;
use crate::config::{PlannedTenant, Written, difference};

/// A tenant without the text that its plan borrows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct InstalledTenant {
    pub(crate) name: String,
    settings: Written,
    users: Vec<u32>,
    token_file: Option<PathBuf>,
}

impl InstalledTenant {
    /// The tenant of a plan, whose files are relative to `directory`.
    pub(crate) fn of(tenant: &PlannedTenant, directory: &Path) -> Self {
        Self {
            name: tenant.name.clone(),
            settings: tenant.written(),
            users: tenant.settings.users.clone(),
            token_file: tenant.settings.token_file.as_ref().map(|path| located(&directory.join(path))),
        }
    }
}

/// The one name of a file, which a relative path or a link may name as well.
fn located(path: &Path) -> PathBuf {
    path.canonicalize().or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// Tells of each tenant that comes, goes or has other settings.
pub(crate) fn changes(
    before: &[InstalledTenant],
    after: &[InstalledTenant],
    mut tell: impl FnMut(api::ChangeKind, &str, String),
) {
    for tenant in after {
        match before.iter().find(|known| known.name == tenant.name) {
            None => {
                let of = |key: &str| tenant.settings.get(key).cloned().unwrap_or_default();
                let detail = format!("weight {}, priority {}", of("weight"), of("priority"));
                tell(api::ChangeKind::Added, &tenant.name, detail);
            }
            Some(known) if known.settings != tenant.settings => {
                tell(api::ChangeKind::Updated, &tenant.name, difference(&known.settings, &tenant.settings));
            }
            Some(known) if known != tenant => {
                tell(api::ChangeKind::Updated, &tenant.name, "its credentials differ".into());
            }
            Some(_) => {}
        }
    }
    for tenant in before.iter().filter(|known| !after.iter().any(|tenant| tenant.name == known.name)) {
        tell(api::ChangeKind::Removed, &tenant.name, "its packets leave first".into());
    }
}

/// The credentials of these tenants.
///
/// # Errors
/// A token file that cannot be read, or whose text can be no token.
pub(crate) fn grants_of(tenants: &[InstalledTenant]) -> Result<Vec<Grant>, String> {
    let grant = |tenant: &InstalledTenant| {
        let token = tenant.token_file.as_ref().map(|path| token(path)).transpose()?;
        let grant = Grant { tenant: tenant.name.clone(), users: tenant.users.clone(), token };
        let checked = grant.check().map_err(|error| format!("tenant `{}`: {error}", tenant.name));
        checked.map(|()| grant)
    };
    let grants = tenants.iter().map(grant).collect::<Result<Vec<Grant>, String>>()?;
    for (number, one) in grants.iter().enumerate().filter(|(_, one)| one.token.is_some()) {
        if let Some(other) = grants[..number].iter().find(|other| other.token == one.token) {
            return Err(format!("tenants `{}` and `{}` have the same token", other.tenant, one.tenant));
        }
    }
    Ok(grants)
}
