//! The macro by which settings are declared once, and the parts of which its code is made.
//!
//! From each declared field come the struct's field, the key with its text for operators, the value where the key is left
//! out, and the reading. The default is written once, as an operator would write it, and parsed where it is needed.

use std::fmt;

use serde::de::{DeserializeSeed, Deserializer, Error, Visitor};

pub use serde;

/// Declares the settings of a function or a port: a struct with its [`KEYS`](crate::Keys::KEYS).
///
/// The struct can be read from a table of a file.
///
/// Each field is declared as `/// SUMMARY`, then `NAME: TYPE = DEFAULT, "KIND OF VALUE, UNIT";`. The summary is what an
/// operator reads about the key. `DEFAULT` is one of
/// - a value as it is written in TOML: `65_536`, `"60 s"`, `[80]`, `true`;
/// - `required`: the key must be given;
/// - `unset`, or `unset "one a worker"`: left out, the field has its type's default, mostly `None`. The text says what
///   happens then; it is `none` where there is no text;
/// - `skipped`, without a kind: the field is no key, and has its type's default.
///
/// `NAME as "loop"` gives the key another name than the field. `, read by FUNCTION` behind the kind reads the value with a
/// function such as [`port_numbers`](crate::units::port_numbers), as `deserialize_with` of serde does.
///
/// An empty line in a summary parts its first sentence from the rest, for this documentation alone. A struct without
/// required keys has a `Default`. [`Declared::with_defaults`] makes one of the required values.
///
/// ```
/// use netbricks_core::declaration::Declared;
/// use netbricks_core::units::{Duration, port_numbers};
/// use netbricks_core::{InvalidSetting, Keys, Settings, settings};
///
/// settings! {
///     /// Settings of `watch`.
///     #[derive(Clone, Debug)]
///     pub struct WatchConfig {
///         /// The host that is watched.
///         pub host: String = required, "text";
///         /// Ports on which it is watched.
///         pub ports: Vec<u16> = [80, 443], "list of port numbers", read by port_numbers;
///         /// After so long a silence a flow is over.
///         pub idle: Duration = "60 s", "duration";
///         /// Packets that are looked at.
///         pub limit: Option<u64> = unset "no limit", "whole number, packets";
///     }
/// }
///
/// impl Settings for WatchConfig {
///     fn check(&self) -> Result<(), InvalidSetting> {
///         match self.limit {
///             Some(0) => Err(InvalidSetting { key: "limit", problem: "must be 1 or more, found 0".into() }),
///             _ => Ok(()),
///         }
///     }
/// }
///
/// assert_eq!(WatchConfig::KEYS[2].default, Some("\"60 s\""));
/// assert_eq!(WatchConfig::KEYS[2].summary, "After so long a silence a flow is over.");
/// let config = WatchConfig::with_defaults(("example.org".into(),));
/// assert_eq!((config.ports, config.idle.nanoseconds(), config.limit), (vec![80, 443], 60_000_000_000, None));
/// ```
#[macro_export]
macro_rules! settings {
    // The fields are taken one by one. What is made of them is kept in brackets: the struct's fields, the keys, what code
    // is made of, the required ones, and those that are no keys.
    (@fields $head:tt
        [$($members:tt)*] [$($keys:tt)*] [$($code:tt)*] [$($required:tt)*] [$($skipped:tt)*]
        $(#[$attribute:meta])* $vis:vis $field:ident: $type:ty = skipped; $($rest:tt)*
    ) => {
        $crate::settings!(@fields $head
            [$($members)* $(#[$attribute])* $vis $field: $type,] [$($keys)*] [$($code)*] [$($required)*]
            [$($skipped)* $field]
            $($rest)*);
    };
    (@fields $head:tt
        [$($members:tt)*] [$($keys:tt)*] [$($code:tt)*] [$($required:tt)*] [$($skipped:tt)*]
        $(#[doc = $doc:literal])+ $vis:vis $field:ident $(as $key:literal)?: $type:ty = required,
        $kind:literal $(, read by $read:path)?; $($rest:tt)*
    ) => {
        $crate::settings!(@fields $head
            [$($members)* $(#[doc = $doc])+ $vis $field: $type,]
            [$($keys)* {
                $crate::settings!(@name $field $($key)?), $kind, None, concat!($($doc),+)
            }]
            [$($code)* {$field [$field $($key)?] [$type] required [$($read)?]}]
            [$($required)* {$field $type}] [$($skipped)*]
            $($rest)*);
    };
    (@fields $head:tt
        [$($members:tt)*] [$($keys:tt)*] [$($code:tt)*] [$($required:tt)*] [$($skipped:tt)*]
        $(#[doc = $doc:literal])+ $vis:vis $field:ident $(as $key:literal)?: $type:ty = unset $($text:literal)?,
        $kind:literal $(, read by $read:path)?; $($rest:tt)*
    ) => {
        $crate::settings!(@fields $head
            [$($members)* $(#[doc = $doc])+ $vis $field: $type,]
            [$($keys)* {
                $crate::settings!(@name $field $($key)?), $kind, Some($crate::settings!(@unset $($text)?)),
                concat!($($doc),+)
            }]
            [$($code)* {$field [$field $($key)?] [$type] unset [$($read)?]}]
            [$($required)*] [$($skipped)*]
            $($rest)*);
    };
    (@fields $head:tt
        [$($members:tt)*] [$($keys:tt)*] [$($code:tt)*] [$($required:tt)*] [$($skipped:tt)*]
        $(#[doc = $doc:literal])+ $vis:vis $field:ident $(as $key:literal)?: $type:ty = $default:tt,
        $kind:literal $(, read by $read:path)?; $($rest:tt)*
    ) => {
        $crate::settings!(@fields $head
            [$($members)* $(#[doc = $doc])+ $vis $field: $type,]
            [$($keys)* {
                $crate::settings!(@name $field $($key)?), $kind, Some(stringify!($default)), concat!($($doc),+)
            }]
            [$($code)* {$field [$field $($key)?] [$type] $default [$($read)?]}]
            [$($required)*] [$($skipped)*]
            $($rest)*);
    };
    (@fields {[$($attributes:tt)*] [$vis:vis] $name:ident}
        [$($members:tt)*]
        [$({$key:expr, $kind:expr, $default:expr, $summary:expr})*]
        [$({$field:ident $named:tt [$type:ty] $value:tt $read:tt})*]
        [$({$required:ident $required_type:ty})*]
        [$($skipped:ident)*]
    ) => {
        $($attributes)* $vis struct $name { $($members)* }

        impl $crate::Keys for $name {
            const KEYS: &'static [$crate::Key] = &[
                $($crate::Key { name: $key, kind: $kind, default: $default, summary: $summary.trim_ascii() }),*
            ];
        }

        impl $crate::declaration::Declared for $name {
            type Required = ($($required_type,)*);
            fn with_defaults(($($required,)*): Self::Required) -> Self {
                Self {
                    $($field: $crate::settings!(@initial $field $named [$type] $value $read),)*
                    $($skipped: ::std::default::Default::default(),)*
                }
            }
        }

        impl<'de> $crate::declaration::serde::Deserialize<'de> for $name {
            fn deserialize<D>(deserializer: D) -> ::std::result::Result<Self, D::Error>
            where
                D: $crate::declaration::serde::Deserializer<'de>,
            {
                struct Table;
                impl<'de> $crate::declaration::serde::de::Visitor<'de> for Table {
                    type Value = $name;
                    fn expecting(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                        f.write_str("a table")
                    }
                    fn visit_map<A>(self, mut table: A) -> ::std::result::Result<$name, A::Error>
                    where
                        A: $crate::declaration::serde::de::MapAccess<'de>,
                    {
                        const NAMES: &[&str] = &[$($key),*];
                        // No variables: a function by which a field is read may have its name.
                        struct Found { $($field: ::std::option::Option<$type>,)* }
                        let mut found = Found { $($field: None,)* };
                        while let Some(key) = table.next_key_seed($crate::declaration::OneOf(NAMES))? {
                            // A table without keys has no other use for these.
                            let _ = (key, &mut found);
                            $(if key == $crate::settings!(@name $named) {
                                let seed = $crate::settings!(@seed [$type] $read);
                                found.$field = Some(table.next_value_seed(seed)?);
                            })*
                        }
                        Ok($name {
                            $($field: match found.$field {
                                Some(value) => value,
                                None => $crate::settings!(@absent $named [$type] $value $read),
                            },)*
                            $($skipped: ::std::default::Default::default(),)*
                        })
                    }
                }
                const NAMES: &[&str] = &[$($key),*];
                deserializer.deserialize_struct(stringify!($name), NAMES, Table)
            }
        }

        $crate::settings!(@default $name [$($required)*]);
    };

    (@name [$($named:tt)+]) => { $crate::settings!(@name $($named)+) };
    (@name $field:ident) => { stringify!($field) };
    (@name $field:ident $key:literal) => { $key };

    (@unset) => { "none" };
    (@unset $text:literal) => { $text };

    (@seed [$type:ty] []) => { ::std::marker::PhantomData::<$type> };
    (@seed [$type:ty] [$read:path]) => {{
        struct Read;
        impl<'de> $crate::declaration::serde::de::DeserializeSeed<'de> for Read {
            type Value = $type;
            fn deserialize<D>(self, deserializer: D) -> ::std::result::Result<$type, D::Error>
            where
                D: $crate::declaration::serde::Deserializer<'de>,
            {
                $read(deserializer)
            }
        }
        Read
    }};

    // A value where the table has none.
    (@absent $named:tt [$type:ty] required $read:tt) => {
        return Err($crate::declaration::serde::de::Error::missing_field($crate::settings!(@name $named)))
    };
    (@absent $named:tt [$type:ty] unset $read:tt) => { <$type as ::std::default::Default>::default() };
    (@absent $named:tt [$type:ty] $default:tt $read:tt) => {
        $crate::declaration::default_value(
            $crate::settings!(@name $named), stringify!($default), $crate::settings!(@seed [$type] $read)
        )
        .map_err($crate::declaration::serde::de::Error::custom)?
    };

    // A value where there is no table.
    (@initial $field:ident $named:tt [$type:ty] required $read:tt) => { $field };
    (@initial $field:ident $named:tt [$type:ty] unset $read:tt) => {
        <$type as ::std::default::Default>::default()
    };
    (@initial $field:ident $named:tt [$type:ty] $default:tt $read:tt) => {
        $crate::declaration::default_value(
            $crate::settings!(@name $named), stringify!($default), $crate::settings!(@seed [$type] $read)
        )
        .unwrap_or_else(|error| panic!("{error}"))
    };

    (@default $name:ident []) => {
        impl ::std::default::Default for $name {
            fn default() -> Self {
                <Self as $crate::declaration::Declared>::with_defaults(())
            }
        }
    };
    (@default $name:ident [$($required:ident)+]) => {};

    ($(#[$attribute:meta])* $vis:vis struct $name:ident { $($fields:tt)* }) => {
        $crate::settings!(@fields {[$(#[$attribute])*] [$vis] $name} [] [] [] [] [] $($fields)*);
    };
}

/// Settings that were declared with [`settings!`](crate::settings).
pub trait Declared: Sized {
    /// The types of the required keys, in their order.
    type Required;
    /// Settings with these values of the required keys, and the default of each other key.
    ///
    /// # Panics
    /// Where a declared default is not a value of its field's type.
    fn with_defaults(required: Self::Required) -> Self;
}

/// A default that is not a value of its field's type: a fault of the declaration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the declared default of `{key}`, {text}, cannot be read: {problem}")]
pub struct BadDefault {
    key: &'static str,
    text: &'static str,
    problem: String,
}

/// The value of a default that is declared as TOML.
///
/// # Errors
/// [`BadDefault`] where it is none of the field's.
pub fn default_value<S: DeserializeSeed<'static>>(
    key: &'static str,
    text: &'static str,
    seed: S,
) -> Result<S::Value, BadDefault> {
    let read = toml::de::ValueDeserializer::parse(text).and_then(|value| seed.deserialize(value));
    read.map_err(|error| BadDefault { key, text, problem: error.message().into() })
}

/// Reads a name that must be one of these.
#[derive(Clone, Copy, Debug)]
pub struct OneOf(pub &'static [&'static str]);

impl<'de> DeserializeSeed<'de> for OneOf {
    type Value = &'static str;
    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<&'static str, D::Error> {
        deserializer.deserialize_identifier(self)
    }
}

impl Visitor<'_> for OneOf {
    type Value = &'static str;
    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }
    fn visit_str<E: Error>(self, found: &str) -> Result<&'static str, E> {
        let known = self.0.iter().find(|name| **name == found);
        known.copied().ok_or_else(|| E::unknown_field(found, self.0))
    }
}
