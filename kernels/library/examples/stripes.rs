//! Ten buffers and four of parity by Reed-Solomon, as for disks: any four may be lost.
//!
//! ```text
//! cargo run -p recoded-library --example stripes
//! ```

use recoded_library::ReedSolomon;
use std::error::Error;

const DATA: usize = 10;
const PARITY: usize = 4;
const BYTES: usize = 4096;

/// Ends with an error if a call is refused.
pub fn main() -> Result<(), Box<dyn Error>> {
    let data: Vec<Vec<u8>> = (0..DATA).map(|row| vec![row as u8 + 1; BYTES]).collect();
    let rows: Vec<&[u8]> = data.iter().map(Vec::as_slice).collect();
    let mut parity = vec![vec![0; BYTES]; PARITY];
    let mut outputs: Vec<&mut [u8]> = parity.iter_mut().map(Vec::as_mut_slice).collect();
    let code = ReedSolomon::new(DATA, PARITY)?;
    code.encode(&rows, &mut outputs)?;

    // Buffers 0 to 9 are data, 10 to 13 parity. These are lost.
    let lost = [0, 3, 9, 11];
    let all: Vec<&[u8]> = rows.iter().copied().chain(parity.iter().map(Vec::as_slice)).collect();
    let intact: Vec<usize> = (0..DATA + PARITY).filter(|id| !lost.contains(id)).collect();
    let left: Vec<&[u8]> = intact.iter().map(|id| all[*id]).collect();
    let mut recovered = vec![vec![0; BYTES]; lost.len()];
    let mut outputs: Vec<&mut [u8]> = recovered.iter_mut().map(Vec::as_mut_slice).collect();
    let ids: Vec<usize> = intact.iter().copied().chain(lost).collect();
    code.recover(&ids, &left, &mut outputs)?;
    for (id, bytes) in lost.into_iter().zip(&recovered) {
        assert_eq!(bytes, all[id], "buffer {id}");
    }
    println!("of {} buffers, {lost:?} were lost and recovered", DATA + PARITY);
    Ok(())
}
