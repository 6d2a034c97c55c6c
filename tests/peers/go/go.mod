module folding

go 1.19
