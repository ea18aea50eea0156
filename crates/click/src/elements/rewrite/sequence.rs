//! Sequence numbers of TCP that bytes put in or taken out have shifted.

/// The most places of one direction at which sequence numbers are known to shift; the oldest are given up.
const MOST: usize = 32;
/// Sequence numbers so far behind are of no more use.
const FORGOTTEN: u32 = 1 << 30;

/// Whether a sequence number is the other or lies behind it.
fn reaches(number: u32, other: u32) -> bool {
    number.wrapping_sub(other) as i32 >= 0
}

/// The shifts of one direction.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Shift {
    /// The shift of numbers before all places.
    first: i32,
    /// Places, as the sender numbers them, with the shift from there on, in their order.
    places: Vec<(u32, i32)>,
}

impl Shift {
    /// The newest shift.
    pub(super) fn newest(&self) -> i32 {
        self.places.last().map_or(self.first, |(_, shift)| *shift)
    }

    /// Whether no number is shifted.
    pub(super) fn is_none(&self) -> bool {
        self.first == 0 && self.places.is_empty()
    }

    /// From a place on, numbers shift by `by` more. A place behind one that is known changes nothing.
    pub(super) fn add(&mut self, place: u32, by: i32) {
        if let Some((last, _)) = self.places.last() {
            if !reaches(place, *last) {
                return;
            }
            if *last == place {
                self.places.pop();
            }
        }
        let shift = self.newest().wrapping_add(by);
        self.places.push((place, shift));
        while let Some((oldest, shift)) = self.places.first().copied()
            && (self.places.len() > MOST || reaches(place, oldest.wrapping_add(FORGOTTEN)))
            && self.places.len() > 1
        {
            self.first = shift;
            self.places.remove(0);
        }
    }

    /// Gives up all places when a number far behind the last comes.
    pub(super) fn pass(&mut self, number: u32) {
        if let Some((last, shift)) = self.places.last()
            && reaches(number, last.wrapping_add(FORGOTTEN))
        {
            self.first = *shift;
            self.places.clear();
        }
    }

    /// A number of the sender as the receiver is to see it.
    pub(super) fn forward(&self, number: u32) -> u32 {
        let place = self.places.iter().rev().find(|(place, _)| reaches(number, *place));
        number.wrapping_add_signed(place.map_or(self.first, |(_, shift)| *shift))
    }

    /// A number that the receiver acknowledges as the sender counts it.
    pub(super) fn back(&self, number: u32) -> u32 {
        let place = self
            .places
            .iter()
            .rev()
            .find(|(place, shift)| reaches(number.wrapping_sub(*shift as u32), *place));
        number.wrapping_sub(place.map_or(self.first, |(_, shift)| *shift) as u32)
    }
}

/// The shifts of a flow: of its packets forward and of those in reply.
pub(super) type Shifts = [Shift; 2];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_shift_from_a_place_on() {
        let mut shift = Shift::default();
        assert!(shift.is_none());
        shift.add(30, -12);
        shift.add(65, -12);
        assert_eq!([0, 29, 30, 64, 65].map(|number| shift.forward(number)), [0, 29, 18, 52, 41]);
        assert_eq!([0, 18, 40, 45].map(|number| shift.back(number)), [0, 30, 52, 69]);
        assert_eq!(shift.newest(), -24);
    }

    #[test]
    fn a_repeated_place_counts_once_and_an_earlier_one_not() {
        let mut shift = Shift::default();
        shift.add(30, -12);
        shift.add(30, -12);
        shift.add(20, 7);
        assert_eq!(shift.newest(), -12);
    }

    #[test]
    fn places_far_behind_are_forgotten() {
        let mut shift = Shift::default();
        shift.add(30, -12);
        shift.pass(1_100_000_000);
        assert_eq!((shift.forward(0), shift.back(0)), (0_u32.wrapping_sub(12), 12));
        for place in 0..100 {
            shift.add(1_200_000_000 + place, 1);
        }
        assert_eq!(shift.places.len(), MOST);
        assert_eq!(shift.newest(), 88);
    }
}
