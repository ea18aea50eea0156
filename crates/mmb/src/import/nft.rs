//! The output of `nft list ruleset`, also with `-n`, `-s` or `-a`.

use super::emit::emit;
use super::nft_tables::read;
use super::{ImportOptions, Imported};

/// Translates the rules about forwarded packets that `nft list ruleset` prints.
///
/// These are base chains of the hooks `forward` and `ingress`, or the one that the options name.
pub fn nft(text: &str, options: &ImportOptions) -> Imported {
    let mut imported = Imported::default();
    let tables = read(text, options, &mut imported);
    emit(&tables, options, &mut imported);
    imported.finished_in(options.target)
}
