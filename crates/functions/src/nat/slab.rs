//! Numbered places for a bounded number of records.

/// Records by number; memory is reserved at the beginning and never grows.
pub(super) struct Slab<T> {
    places: Vec<Option<T>>,
    free: Vec<u32>,
    capacity: usize,
    len: usize,
}

impl<T> Slab<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self { places: Vec::with_capacity(capacity), free: Vec::with_capacity(capacity), capacity, len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn capacity(&self) -> usize {
        self.capacity
    }

    pub(super) fn is_full(&self) -> bool {
        self.len == self.capacity
    }

    /// Adds a record; `None` when there is no room.
    pub(super) fn insert(&mut self, value: T) -> Option<u32> {
        let number = match self.free.pop() {
            Some(number) => number,
            None if self.places.len() < self.capacity => {
                self.places.push(None);
                (self.places.len() - 1) as u32
            }
            None => return None,
        };
        self.places[number as usize] = Some(value);
        self.len += 1;
        Some(number)
    }

    pub(super) fn remove(&mut self, number: u32) -> Option<T> {
        let taken = self.places.get_mut(number as usize)?.take();
        if taken.is_some() {
            self.free.push(number);
            self.len -= 1;
        }
        taken
    }

    #[inline]
    pub(super) fn get(&self, number: u32) -> Option<&T> {
        self.places.get(number as usize)?.as_ref()
    }

    #[inline]
    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut T> {
        self.places.get_mut(number as usize)?.as_mut()
    }

    /// All records with their numbers, in the order of the numbers.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u32, &T)> {
        (0..).zip(&self.places).filter_map(|(number, place)| Some((number, place.as_ref()?)))
    }

    /// The numbers that were ever given out: all records have lower ones.
    pub(super) fn end(&self) -> usize {
        self.places.len()
    }
}
