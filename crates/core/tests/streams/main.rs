//! Byte streams against naive models, and the bounds that they keep.

mod captures;
mod endpoints;
mod exercise;
mod flood;
mod model;
mod rules;
mod schedules;
mod windows;
