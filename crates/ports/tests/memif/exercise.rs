//! Messages of memif's control channel, from any bytes.

use netbricks_ports::memif::message::{Message, MessageError, text};

/// Reads bytes as a message.
///
/// One that is understood is written as it was read, but for bytes behind its fields.
///
/// # Errors
/// As [`Message::parse`].
pub fn message(bytes: &[u8]) -> Result<Message, MessageError> {
    let message = Message::parse(bytes)?;
    let written = message.encode();
    assert_eq!(Message::parse(&written), Ok(message));
    // Of a ring's flags only one bit has a meaning.
    let flags = if matches!(message, Message::AddRing(_)) { 2..4 } else { 0..0 };
    for (at, (written, read)) in written.iter().zip(bytes).enumerate() {
        assert!(*written == 0 || written == read || flags.contains(&at), "byte {at}: {message:?}");
    }
    if let Message::Disconnect { reason, .. } = &message {
        assert!(text(reason).bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{message:?}");
    }
    Ok(message)
}
