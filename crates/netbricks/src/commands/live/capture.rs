//! `capture`: the next packets that match, into a file or a pipe.

use std::fs::File;
use std::io::{IsTerminal, Write};
use std::path::Path;

use super::arguments::CaptureArguments;
use super::waiting::{each, filter};
use super::{Api, Failure, Output, Trouble};

pub(super) fn capture(
    api: &dyn Api,
    output: &mut Output<'_>,
    arguments: &CaptureArguments,
) -> Result<(), Trouble> {
    let CaptureArguments { filter: words, at, count, snaplen, write, .. } = arguments;
    let filter = filter(output, words)?;
    let to_output = write == Path::new("-");
    if to_output && std::io::stdout().is_terminal() {
        return Err(Failure::Usage(
            "a terminal shows no capture: name a file with `-w FILE`, or pipe it: `-w - | tshark -r -`"
                .into(),
        )
        .into());
    }
    let pieces = api.capture(&filter, at.as_deref(), *count, *snaplen)?;
    let failed = |error: std::io::Error| Failure::Failed(format!("`{}`: {error}", write.display()));
    let mut file = if to_output { None } else { Some(File::create(write).map_err(failed)?) };
    let mut bytes = 0u64;
    let copied = each(output, pieces, |output, piece: Vec<u8>| {
        bytes += piece.len() as u64;
        match &mut file {
            Some(file) => file.write_all(&piece).map_err(failed),
            None => output.write(&piece),
        }
    });
    match copied {
        // The reader has seen enough.
        Err(Trouble::Failure(Failure::Closed)) => Ok(()),
        Err(trouble) => Err(trouble),
        Ok(()) => {
            if file.is_some() {
                output.tell(&format!("{bytes} bytes in {}\n", write.display()));
            }
            Ok(())
        }
    }
}
