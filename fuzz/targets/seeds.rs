//! Writes the seeds of every target: `seeds FOLDER` makes `FOLDER/TARGET/NUMBER`.

use std::path::Path;

fn main() -> std::io::Result<()> {
    let folder = std::env::args_os().nth(1).expect("usage: seeds FOLDER");
    for law in tapline_fuzz::LAWS {
        let folder = Path::new(&folder).join(law.name);
        std::fs::create_dir_all(&folder)?;
        for (number, seed) in (law.seeds)().iter().enumerate() {
            std::fs::write(folder.join(format!("seed-{number}")), seed)?;
        }
    }
    Ok(())
}
