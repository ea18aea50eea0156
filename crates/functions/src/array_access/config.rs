//! Settings of `array-access`.

use netbricks_core::{InvalidSetting, Settings};

netbricks_core::settings! {
    /// Settings of `array-access`.
    #[derive(Clone, Debug)]
    pub struct ArrayAccessConfig {
        /// Cells that each packet updates.
        pub accesses: u32 = 1, "whole number, up to 65_536";
    }
}

impl Settings for ArrayAccessConfig {
    fn check(&self) -> Result<(), InvalidSetting> {
        if self.accesses > 1 << 16 {
            let problem = format!("must be 0 to 65,536 cells, found {}", self.accesses);
            return Err(InvalidSetting { key: "accesses", problem });
        }
        Ok(())
    }
}
