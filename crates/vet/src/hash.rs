//! SHA-256 over files and folders.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

/// The SHA-256 of some bytes, in hexadecimal.
pub fn of_bytes(bytes: &[u8]) -> String {
    hexadecimal(&Sha256::digest(bytes))
}

/// The SHA-256 of a file.
///
/// # Errors
/// Where it cannot be read.
pub fn of_file(path: &Path) -> io::Result<String> {
    of_reader(fs::File::open(path)?)
}

/// The SHA-256 of everything that a reader gives.
///
/// # Errors
/// Where it cannot be read.
pub fn of_reader(mut reader: impl io::Read) -> io::Result<String> {
    let mut digest = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match reader.read(&mut buffer)? {
            0 => return Ok(hexadecimal(&digest.finalize())),
            read => digest.update(&buffer[..read]),
        }
    }
}

/// The SHA-256 over a folder: the names, lengths and contents of its files, in the order of their names.
///
/// `target` and folders whose name begins with a dot are left out: no source of a crate that passes lies there. A
/// symbolic link counts with the name that it leads to.
///
/// # Errors
/// Where a file cannot be read.
pub fn of_folder(folder: &Path) -> io::Result<String> {
    let mut files = Vec::new();
    collect(folder, Path::new(""), &mut files)?;
    files.sort();
    let mut digest = Sha256::new();
    for name in files {
        let path = folder.join(&name);
        let content = match fs::symlink_metadata(&path)?.is_symlink() {
            true => fs::read_link(&path)?.into_os_string().into_encoded_bytes(),
            false => fs::read(&path)?,
        };
        for part in [name.as_os_str().as_encoded_bytes(), &content] {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
    }
    Ok(hexadecimal(&digest.finalize()))
}

fn collect(folder: &Path, below: &Path, files: &mut Vec<PathBuf>) -> io::Result<()> {
    for entry in fs::read_dir(folder.join(below))? {
        let entry = entry?;
        let name = below.join(entry.file_name());
        let kind = entry.file_type()?;
        let is_hidden = entry.file_name().as_encoded_bytes().starts_with(b".");
        if !kind.is_dir() {
            files.push(name);
        } else if !is_hidden && name != Path::new("target") {
            collect(folder, &name, files)?;
        }
    }
    Ok(())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
