//! The search for literals by Hyperscan or Vectorscan, in builds with the feature `hyperscan`.
//!
//! Both libraries have the same interface. A database holds the literals of one group of rules; the scratch space that a
//! search needs belongs to a worker.

pub(super) use implementation::{Database, Scratch};

/// Whether this build has the library.
pub(super) const IS_BUILT: bool = cfg!(feature = "hyperscan");

/// The library did not end the search: some matches may be missing.
#[derive(Debug)]
pub(super) struct Unfinished;

#[cfg(feature = "hyperscan")]
mod implementation {
    use std::collections::BTreeMap;
    use std::fmt::Write as _;

    use hyperscan::{BlockDatabase, Builder as _, Matching, Pattern, PatternFlags, Patterns};

    use super::Unfinished;

    /// Some bytes in lower case, and the rules that are looked for by them.
    struct Literal {
        bytes: Box<[u8]>,
        rules: Box<[u32]>,
    }

    /// The literals of a group, compiled for this machine's processor.
    pub(in super::super) struct Database {
        compiled: BlockDatabase,
        /// Its place among the databases of a set of rules.
        number: usize,
        /// By the number that a match has.
        literals: Vec<Literal>,
    }

    /// The memory of one worker's searches.
    ///
    /// By default it is empty, and no search ends.
    #[derive(Default)]
    pub(in super::super) struct Scratch(Vec<hyperscan::Scratch>);

    impl Database {
        /// Compiles literals in lower case, with the rules of each. The case of letters does not count.
        ///
        /// # Errors
        /// The library's reason for refusing them.
        pub(in super::super) fn new(literals: BTreeMap<&[u8], Vec<u32>>) -> Result<Self, String> {
            let literals: Vec<Literal> = literals
                .into_iter()
                .map(|(bytes, rules)| Literal { bytes: bytes.into(), rules: rules.into() })
                .collect();
            // Literals of the binding are UTF-8, so each byte is written as an expression.
            let pattern = |literal: &Literal| {
                let mut expression = String::with_capacity(literal.bytes.len() * 4);
                for byte in &literal.bytes {
                    // Text takes any text.
                    let _ = write!(expression, "\\x{byte:02x}");
                }
                Pattern::with_flags(expression, PatternFlags::CASELESS)
            };
            let patterns: Patterns = literals
                .iter()
                .map(pattern)
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| error.to_string())?
                .into();
            let compiled = patterns.build().map_err(|error| error.to_string())?;
            Ok(Self { compiled, number: 0, literals })
        }

        /// Gives it its place among the databases of a set of rules.
        pub(in super::super) fn set_number(&mut self, number: usize) {
            self.number = number;
        }

        /// Looks for literals in `data` that end behind its first `known` bytes.
        ///
        /// `hit` gets each rule, the place behind its literal, and the literal's length. It must not panic: the process
        /// would end.
        #[inline]
        pub(in super::super) fn scan(
            &self,
            scratch: &Scratch,
            data: &[u8],
            known: usize,
            mut hit: impl FnMut(u32, usize, usize),
        ) -> Result<(), Unfinished> {
            let found = |number: u32, _: u64, end: u64, _: u32| {
                let end = end as usize;
                if end > known
                    && let Some(Literal { bytes, rules }) = self.literals.get(number as usize)
                {
                    rules.iter().for_each(|rule| hit(*rule, end, bytes.len()));
                }
                Matching::Continue
            };
            let space = scratch.0.get(self.number).ok_or(Unfinished)?;
            self.compiled.scan(data, space, found).map_err(|_| Unfinished)
        }

        /// Bytes of memory.
        pub(in super::super) fn memory(&self) -> usize {
            let literals = self.literals.iter().map(|literal| literal.bytes.len() + literal.rules.len() * 4);
            self.compiled.size().unwrap_or(0) + literals.sum::<usize>()
        }
    }

    impl Scratch {
        /// Scratch space for these databases, which are numbered from 0 in this order.
        ///
        /// # Errors
        /// The library's reason, such as missing memory.
        pub(in super::super) fn of<'d>(
            databases: impl Iterator<Item = &'d Database>,
        ) -> Result<Self, String> {
            // Each has its own, of a few KiB. The binding frees space twice where one that is shared cannot grow.
            let spaces = databases.map(|database| database.compiled.alloc_scratch());
            spaces.collect::<Result<_, _>>().map(Self).map_err(|error| error.to_string())
        }
    }
}

/// Without the library there are no databases.
#[cfg(not(feature = "hyperscan"))]
mod implementation {
    use std::collections::BTreeMap;

    use super::Unfinished;

    /// No database exists.
    pub(in super::super) enum Database {}

    /// Scratch space for no database.
    #[derive(Default)]
    pub(in super::super) struct Scratch(());

    impl Database {
        /// Refuses the literals.
        ///
        /// # Errors
        /// Always: the library is missing.
        pub(in super::super) fn new(_: BTreeMap<&[u8], Vec<u32>>) -> Result<Self, String> {
            Err("this build lacks the library".into())
        }

        pub(in super::super) fn set_number(&mut self, _: usize) {
            match *self {}
        }

        #[inline]
        pub(in super::super) fn scan(
            &self,
            _: &Scratch,
            _: &[u8],
            _: usize,
            _: impl FnMut(u32, usize, usize),
        ) -> Result<(), Unfinished> {
            match *self {}
        }

        pub(in super::super) fn memory(&self) -> usize {
            match *self {}
        }
    }

    impl Scratch {
        /// Nothing, as there are no databases.
        pub(in super::super) fn of<'d>(_: impl Iterator<Item = &'d Database>) -> Result<Self, String> {
            Ok(Self(()))
        }
    }
}
