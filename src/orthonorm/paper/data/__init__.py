"""Data sets by name: real ones from their public files, and synthetic ones that say so in their names."""

from orthonorm.paper.data.dataset import Dataset as Dataset
from orthonorm.paper.data.imagenet import ImageFolders as ImageFolders
from orthonorm.paper.data.order import batch_order as batch_order
from orthonorm.paper.data.order import generator as generator
from orthonorm.paper.data.table import DATASETS as DATASETS
from orthonorm.paper.data.table import IMAGE_SETS as IMAGE_SETS
from orthonorm.paper.data.table import check_dataset as check_dataset
from orthonorm.paper.data.table import load_data as load_data
from orthonorm.paper.data.table import load_dataset as load_dataset
