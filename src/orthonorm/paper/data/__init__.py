"""Data sets by name: real ones from their public files, and synthetic ones that say so in their names."""

from orthonorm.paper.data.dataset import Dataset as Dataset
from orthonorm.paper.data.order import batch_order as batch_order
from orthonorm.paper.data.order import generator as generator
from orthonorm.paper.data.table import DATASETS as DATASETS
from orthonorm.paper.data.table import load_dataset as load_dataset
