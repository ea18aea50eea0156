//! Devices that packets leave by, in the order of their numbers.

use super::Router;

impl Router {
    /// The number of a device that packets leave by: they are numbered in the order in which elements name them.
    pub fn device(&self, name: &str) -> usize {
        let mut devices = self.devices.borrow_mut();
        devices.iter().position(|known| known == name).unwrap_or_else(|| {
            devices.push(name.to_owned());
            devices.len() - 1
        })
    }
    /// Notes a device by which only answers leave: it is numbered behind those that elements send to.
    pub(crate) fn answers_by(&self, name: &str) {
        self.answering.borrow_mut().push(name.to_owned());
    }
    /// The devices that packets leave by.
    pub fn devices(&self) -> Vec<String> {
        let mut devices = self.devices.borrow().clone();
        for name in self.answering.borrow().iter() {
            if !devices.contains(name) {
                devices.push(name.clone());
            }
        }
        devices
    }
    /// Whether only answers leave by a device.
    pub(crate) fn is_answering(&self, name: &str) -> bool {
        let sends = self.devices.borrow().iter().any(|known| known == name);
        !sends && self.answering.borrow().iter().any(|known| known == name)
    }
}
