//! Values as a fixed number of bytes, big-endian, the same on every machine.
//!
//! A table's keys and values need this to be exported.

/// A type with one form in bytes.
///
/// ```
/// use netbricks_tables::Encode;
///
/// #[derive(Debug, PartialEq)]
/// struct Counts { packets: u64, bytes: u64 }
///
/// impl Encode for Counts {
///     const SIZE: usize = 16;
///     const VERSION: u16 = 1;
///     fn encode(&self, to: &mut [u8]) {
///         (self.packets, self.bytes).encode(to);
///     }
///     fn decode(from: &[u8]) -> Option<Self> {
///         let (packets, bytes) = <(u64, u64)>::decode(from)?;
///         Some(Self { packets, bytes })
///     }
/// }
/// let counts = Counts { packets: 3, bytes: 180 };
/// let mut bytes = [0; Counts::SIZE];
/// counts.encode(&mut bytes);
/// assert_eq!(bytes[..8], [0, 0, 0, 0, 0, 0, 0, 3]);
/// assert_eq!(Counts::decode(&bytes), Some(counts));
/// ```
pub trait Encode: Sized {
    /// Bytes of every value.
    const SIZE: usize;
    /// Which form this is; another one is refused when it is imported. 0 for plain numbers.
    const VERSION: u16 = 0;

    /// Writes the value. `to` has [`SIZE`](Self::SIZE) bytes.
    fn encode(&self, to: &mut [u8]);

    /// Reads a value; `None` when these bytes are none. `from` has [`SIZE`](Self::SIZE) bytes.
    fn decode(from: &[u8]) -> Option<Self>;
}

macro_rules! integers {
    ($($integer:ty)*) => {$(
        impl Encode for $integer {
            const SIZE: usize = size_of::<$integer>();
            fn encode(&self, to: &mut [u8]) {
                to.copy_from_slice(&self.to_be_bytes());
            }
            fn decode(from: &[u8]) -> Option<Self> {
                from.try_into().ok().map(Self::from_be_bytes)
            }
        }
    )*};
}
integers!(u8 u16 u32 u64 u128 i8 i16 i32 i64 i128);

impl Encode for () {
    const SIZE: usize = 0;
    fn encode(&self, _: &mut [u8]) {}
    fn decode(from: &[u8]) -> Option<Self> {
        from.is_empty().then_some(())
    }
}

impl Encode for bool {
    const SIZE: usize = 1;
    fn encode(&self, to: &mut [u8]) {
        u8::from(*self).encode(to);
    }
    fn decode(from: &[u8]) -> Option<Self> {
        match from {
            [0] => Some(false),
            [1] => Some(true),
            _ => None,
        }
    }
}

/// Element after element; the elements' version is the array's.
impl<T: Encode, const N: usize> Encode for [T; N] {
    const SIZE: usize = N * T::SIZE;
    const VERSION: u16 = T::VERSION;
    fn encode(&self, mut to: &mut [u8]) {
        for element in self {
            let (here, after) = to.split_at_mut(T::SIZE);
            element.encode(here);
            to = after;
        }
    }
    fn decode(from: &[u8]) -> Option<Self> {
        if from.len() != Self::SIZE {
            return None;
        }
        let mut elements = Vec::with_capacity(N);
        for at in 0..N {
            elements.push(T::decode(&from[at * T::SIZE..(at + 1) * T::SIZE])?);
        }
        elements.try_into().ok()
    }
}

macro_rules! tuples {
    ($($part:ident)*) => {
        /// Part after part. The version is 0: give what may change its form a type of its own.
        impl<$($part: Encode),*> Encode for ($($part,)*) {
            const SIZE: usize = 0 $(+ $part::SIZE)*;
            #[expect(non_snake_case, reason = "one name serves as type and variable in this macro")]
            fn encode(&self, to: &mut [u8]) {
                let ($($part,)*) = self;
                let mut at = 0;
                $(at += { $part.encode(&mut to[at..at + $part::SIZE]); $part::SIZE };)*
                debug_assert_eq!(at, Self::SIZE);
            }
            fn decode(from: &[u8]) -> Option<Self> {
                let mut at = 0;
                let tuple = ($({ at += $part::SIZE; $part::decode(from.get(at - $part::SIZE..at)?)? },)*);
                (at == from.len()).then_some(tuple)
            }
        }
    };
}
tuples!(A);
tuples!(A B);
tuples!(A B C);
tuples!(A B C D);
tuples!(A B C D E);
tuples!(A B C D E F);
